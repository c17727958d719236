
/*
 * What nginx does at its end hides leaks, or makes some: linked into the
 * nginx of t/tools/sanitized-nginx, and loaded before that of t/tools/valgrind.
 */


extern void  *ngx_cycle __attribute__((weak));


/*
 * A module that was unloaded has no names and no variables: whatever these
 * point to would be a leak.
 */

int
dlclose(void *handle)
{
    return handle == 0;
}


/*
 * A start that failed, or was a test of the configuration, leaves the pool of
 * its first cycle, which is on the stack of main(); later ones are not.
 */

int
__lsan_is_turned_off(void)
{
    long  distance;

    if (&ngx_cycle == 0) {
        return 0;
    }

    distance = (char *) ngx_cycle - (char *) __builtin_frame_address(0);

    return distance > -1000000 && distance < 1000000;
}
