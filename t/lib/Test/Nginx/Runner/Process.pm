package Test::Nginx::Runner::Process;

# One nginx at a time, as a child of the test: "daemon off", in a process
# group of its own, so that the whole group can be ended and waited for.

use strict;
use warnings;

use POSIX ();
use Time::HiRes ();

use Exporter 'import';
use Test::Nginx::Util qw(bail_out server_root);

our @EXPORT_OK = qw(nginx_version start_nginx stop_nginx nginx_is_running
                    kill_leftover version_compare);

use constant {
    POLL          => 0.002,
    START_TIMEOUT => 30,
    QUIT_TIMEOUT  => 3,
    TERM_TIMEOUT  => 3,
};

my $child;              # pid of the running nginx
my $died;               # wait status, once it has gone by itself
my $version;


# ---- the binary ----

sub binary { return $ENV{TEST_NGINX_BINARY} || 'nginx' }

sub nginx_version {
    return $version if defined $version;

    my $binary = binary();
    my $answer = `$binary -v 2>&1`;

    bail_out("cannot run \"$binary -v\": " . ($answer || $!))
        unless $answer =~ m{/(\d+\.\d+\.\d+)};

    return $version = $1;
}

# -1, 0 or 1, as <=> does.
sub version_compare {
    my @left  = split /\./, shift;
    my @right = split /\./, shift;

    for my $i (0 .. 3) {
        my $order = ($left[$i] || 0) <=> ($right[$i] || 0);
        return $order if $order;
    }

    return 0;
}

sub command {
    my $root = server_root();
    my @command = (split(' ', binary()), '-p', "$root/",
                   '-c', "$root/conf/nginx.conf");

    # before 1.19.5 the messages of a bad configuration go to stderr only
    push @command, '-e', "$root/logs/error.log"
        if version_compare(nginx_version(), '1.19.5') >= 0;

    return with_valgrind(@command);
}

sub with_valgrind {
    my @command = @_;
    my $options = $ENV{TEST_NGINX_USE_VALGRIND};

    return @command unless $options;

    $options = '--tool=memcheck --leak-check=full' if $options =~ /^\d+$/;

    return ('valgrind', '-q', split(' ', $options), '--gen-suppressions=all',
            (-f 'valgrind.suppress' ? '--suppressions=valgrind.suppress' : ()),
            @command);
}


# ---- start ----

# Returns (1, 0) when nginx is up, (0, exit code, message) when it gave up.
sub start_nginx {
    my %option = @_;
    my $stderr = server_root() . '/logs/stderr.log';
    my $give_up = Time::HiRes::time() + START_TIMEOUT;
    my @command = command();

    defined($child = fork) or bail_out("cannot fork: $!");
    run_child($stderr, @command) if $child == 0;

    POSIX::setpgid($child, $child);
    undef $died;

    while (!pid_file_written()) {
        if (!nginx_is_running()) {
            my $status = $died;
            my $message = read_file($stderr);

            print STDERR $message unless $option{quiet};
            return (0, $status >> 8 || 128 + ($status & 127), $message);
        }

        if (Time::HiRes::time() > $give_up) {
            stop_nginx();
            bail_out("nginx has not written its pid file within "
                     . START_TIMEOUT . " seconds");
        }

        Time::HiRes::sleep(POLL);
    }

    return (1, 0);
}

sub run_child {
    my ($stderr, @command) = @_;

    POSIX::setpgid(0, 0);
    $SIG{$_} = 'DEFAULT' for qw(INT TERM HUP PIPE CHLD);
    $ENV{LD_PRELOAD} = $ENV{TEST_NGINX_LD_PRELOAD}
        if $ENV{TEST_NGINX_LD_PRELOAD};

    open STDIN, '<', '/dev/null';
    open STDOUT, '>', '/dev/null';
    open STDERR, '>', $stderr;

    { no warnings 'exec'; exec @command; }

    print STDERR "cannot run $command[0]: $!\n";
    close STDERR;
    POSIX::_exit(127);
}

# By then nginx listens: a connection waits in the backlog at the worst.
sub pid_file_written {
    return read_file(server_root() . '/logs/nginx.pid') =~ /^\d+\n/;
}

sub read_file {
    my $path = shift;

    open my $in, '<', $path or return '';
    local $/;
    my $text = <$in>;
    return defined $text ? $text : '';
}


# ---- stop ----

sub nginx_is_running {
    return 0 unless $child;

    my $pid = waitpid $child, POSIX::WNOHANG();
    return 1 if $pid == 0;

    $died = $pid == $child ? $? : 0;
    undef $child;
    return 0;
}

# Ends nginx and all its processes, calling $before_force when it does not quit
# when asked to. Returns undef when that went well or when there was nothing to
# end, otherwise a line which says how nginx ended.
sub stop_nginx {
    my $before_force = shift;

    return unless $child || defined $died;

    my $group = $child;
    my $by_itself = !nginx_is_running();

    if (!$by_itself) {
        my $quit = $ENV{TEST_NGINX_FAST_SHUTDOWN} ? 'TERM' : 'QUIT';

        if (!signal_and_wait($quit, QUIT_TIMEOUT)) {
            $before_force->() if $before_force;
            signal_and_wait('TERM', TERM_TIMEOUT) || kill_group($group);
        }
    }

    # workers whose master has gone, if any
    kill 'KILL', -$group if $group;

    my $status = $died;
    undef $died;

    return describe_end($status, $by_itself);
}

sub signal_and_wait {
    my ($signal, $timeout) = @_;
    my $give_up = Time::HiRes::time() + $timeout;

    kill $signal, $child;

    while (nginx_is_running()) {
        return 0 if Time::HiRes::time() > $give_up;
        Time::HiRes::sleep(POLL);
    }

    return 1;
}

sub kill_group {
    my $group = shift;

    kill 'KILL', -$group;
    waitpid $child, 0;
    undef $child;
    $died = 0;
}

sub describe_end {
    my ($status, $by_itself) = @_;

    return "nginx has been ended by signal " . ($status & 127)
        if $status & 127;
    return "nginx has exited with code " . ($status >> 8) if $status >> 8;
    return "nginx has exited by itself" if $by_itself;
    return undef;
}

# An nginx which an earlier run has left on this server root.
sub kill_leftover {
    my $root = server_root();
    my ($pid) = read_file("$root/logs/nginx.pid") =~ /^(\d+)/ or return;
    my $command = read_file("/proc/$pid/cmdline");

    return unless index($command, "$root/") >= 0;

    kill 'TERM', $pid;
    for (1 .. 500) {
        return unless kill 0, $pid;
        Time::HiRes::sleep(POLL);
    }
    kill 'KILL', $pid;
}

1;
