
/*
 * The embedded store: records and marks in the zone.
 *
 * A process may be killed at any instruction.  A change writes the fields of
 * the new state first and the state last, so that a torn one reads as the old
 * state; where it is otherwise, a comment says why.
 */


#include "ngx_idempotency_shm_answer.h"
#include "ngx_idempotency_shm_expiry.h"


/* overdue records that make room for one allocation, at a time */
#define NGX_IDEMPOTENCY_SHM_EXPIRE    64

/* and how often, before others are let to the mutex */
#define NGX_IDEMPOTENCY_SHM_ROUNDS    16


/* the part of a mark that changes, see ngx_idempotency_mark_t */

typedef struct {
    uint64_t                       epoch;
    uint64_t                       next;
} ngx_idempotency_shm_count_t;


_Static_assert(sizeof(ngx_idempotency_shm_node_t)
               == NGX_IDEMPOTENCY_SHM_NODE_SIZE,
               "a record must fill its slab slot");

_Static_assert(NGX_IDEMPOTENCY_FINGERPRINT_LEN
               == NGX_IDEMPOTENCY_FINGERPRINT_SUM
                  + sizeof(((ngx_idempotency_shm_node_t *) 0)->how),
               "a record has room for how its fingerprint was made");

_Static_assert(2 * sizeof(ngx_idempotency_shm_count_t)
               <= NGX_IDEMPOTENCY_FINGERPRINT_SUM,
               "a mark has room for two counts");


static ngx_idempotency_shm_node_t *ngx_idempotency_shm_settle(
    ngx_idempotency_shm_ctx_t *ctx, ngx_idempotency_shm_node_t *node,
    ngx_idempotency_stored_t *stored, uint64_t now);
static ngx_idempotency_shm_node_t *ngx_idempotency_shm_create_node(
    ngx_idempotency_shm_ctx_t *ctx, u_char *digest, uint64_t now);
static void ngx_idempotency_shm_set_fields(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, ngx_idempotency_stored_t *stored);
static void ngx_idempotency_shm_set_state(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, ngx_idempotency_state_e state);
static void ngx_idempotency_shm_link(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, uint64_t due);
static void ngx_idempotency_shm_mark_digest(u_char *mark, u_char *digest);
static void ngx_idempotency_shm_tree(ngx_idempotency_shm_ctx_t *ctx,
    ngx_rbtree_key_t key, ngx_rbtree_t *tree);
static ngx_int_t ngx_idempotency_shm_compare(ngx_rbtree_key_t key,
    u_char *rest, ngx_rbtree_node_t *node);
static void ngx_idempotency_shm_insert_value(ngx_rbtree_node_t *temp,
    ngx_rbtree_node_t *node, ngx_rbtree_node_t *sentinel);


ngx_idempotency_shm_node_t *
ngx_idempotency_shm_find(ngx_idempotency_shm_ctx_t *ctx, u_char *digest,
    ngx_idempotency_stored_t *stored, uint64_t now)
{
    ngx_idempotency_shm_node_t  *node;

    node = ngx_idempotency_shm_lookup(ctx, digest);

    if (node == NULL) {
        ngx_memzero(stored, sizeof(ngx_idempotency_stored_t));
        return NULL;
    }

    return ngx_idempotency_shm_settle(ctx, node, stored, now);
}


ngx_idempotency_shm_node_t *
ngx_idempotency_shm_lookup(ngx_idempotency_shm_ctx_t *ctx, u_char *digest)
{
    u_char             *rest;
    ngx_int_t           rc;
    ngx_rbtree_t        tree;
    ngx_rbtree_key_t    key;
    ngx_rbtree_node_t  *node;

    ngx_memcpy(&key, digest, sizeof(ngx_rbtree_key_t));
    rest = digest + sizeof(ngx_rbtree_key_t);

    ngx_idempotency_shm_tree(ctx, key, &tree);

    node = tree.root;

    while (node != tree.sentinel) {

        rc = ngx_idempotency_shm_compare(key, rest, node);

        if (rc == 0) {
            return ngx_rbtree_data(node, ngx_idempotency_shm_node_t, node);
        }

        node = (rc < 0) ? node->left : node->right;
    }

    return NULL;
}


/* lets time act on a node; NULL: it is gone */

static ngx_idempotency_shm_node_t *
ngx_idempotency_shm_settle(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, ngx_idempotency_stored_t *stored,
    uint64_t now)
{
    if (node->state >= NGX_IDEMPOTENCY_SHM_MARK) {

        if (now < node->lease) {
            return node;
        }

    } else {
        ngx_idempotency_shm_load(node, stored);

        if (now < ngx_idempotency_transition_due(stored)) {
            return node;
        }

        ngx_idempotency_transition_time(stored, now);

        if (stored->exists) {
            ngx_idempotency_shm_write(ctx, node, stored,
                                      NGX_IDEMPOTENCY_MOVED);
            return node;
        }
    }

    ngx_idempotency_shm_remove(ctx, node);

    return NULL;
}


uint64_t
ngx_idempotency_shm_due(ngx_idempotency_shm_node_t *node)
{
    ngx_idempotency_stored_t  stored;

    if (node->state >= NGX_IDEMPOTENCY_SHM_MARK) {
        return node->lease;
    }

    ngx_idempotency_shm_load(node, &stored);

    return ngx_idempotency_transition_due(&stored);
}


ngx_uint_t
ngx_idempotency_shm_expire(ngx_idempotency_shm_ctx_t *ctx, uint64_t now,
    ngx_uint_t n)
{
    ngx_uint_t                   i;
    ngx_idempotency_stored_t     stored;
    ngx_idempotency_shm_node_t  *node;

    for (i = 0; i < n; i++) {

        node = ngx_idempotency_shm_expiry_next(ctx, now);
        if (node == NULL) {
            break;
        }

        node = ngx_idempotency_shm_settle(ctx, node, &stored, now);

        if (node && node->answer && !node->kept) {

            /* its writer has died; one that lives will begin again */

            node->generation = ++ctx->sh->generation;
            ngx_idempotency_shm_answer_free(ctx, node);
        }

        if (node) {
            ngx_idempotency_shm_expiry_move(ctx, node,
                                            ngx_idempotency_shm_due(node));
        }
    }

    return i;
}


void *
ngx_idempotency_shm_alloc(ngx_idempotency_shm_ctx_t *ctx, size_t size,
    uint64_t now)
{
    void        *p;
    ngx_uint_t   i;

    for (i = 0; /* void */ ; i++) {

        p = ngx_slab_alloc_locked(ctx->shpool, size);
        if (p) {
            return p;
        }

        /* what expires makes room for another node, hardly for a page */

        if (i == NGX_IDEMPOTENCY_SHM_ROUNDS
            && size != sizeof(ngx_idempotency_shm_node_t))
        {
            return NULL;
        }

        if (ngx_idempotency_shm_expire(ctx, now, NGX_IDEMPOTENCY_SHM_EXPIRE)
            == 0)
        {
            return NULL;
        }
    }
}


void
ngx_idempotency_shm_load(ngx_idempotency_shm_node_t *node,
    ngx_idempotency_stored_t *stored)
{
    ngx_memcpy(stored->owner, node->owner, NGX_IDEMPOTENCY_OWNER_LEN);
    ngx_memcpy(stored->fingerprint, node->fingerprint,
               NGX_IDEMPOTENCY_FINGERPRINT_SUM);
    ngx_memcpy(stored->fingerprint + NGX_IDEMPOTENCY_FINGERPRINT_SUM,
               node->how, sizeof(node->how));

    stored->state = node->state;
    stored->fence = node->fence;
    stored->lease = node->lease;
    stored->until = node->expire.key;
    stored->issued = node->issued;
    stored->created = (time_t) node->created;
    stored->attempts = node->attempts;
    stored->keep = node->keep;
    stored->tombstone = node->tombstone;
    stored->status = node->status;
    stored->kept = node->kept;
    stored->exists = 1;

    if (node->note) {
        stored->note.data = node->note->data;
        stored->note.len = node->note->len;

    } else {
        ngx_str_null(&stored->note);
    }
}


ngx_idempotency_shm_node_t *
ngx_idempotency_shm_insert(ngx_idempotency_shm_ctx_t *ctx, u_char *digest,
    ngx_idempotency_stored_t *stored, uint64_t now)
{
    ngx_idempotency_shm_node_t  *node;

    node = ngx_idempotency_shm_create_node(ctx, digest, now);
    if (node == NULL) {
        return NULL;
    }

    ngx_idempotency_shm_set_fields(ctx, node, stored);

    node->state = (u_char) stored->state;

    ngx_idempotency_shm_link(ctx, node,
                             ngx_idempotency_transition_due(stored));

    return node;
}


static ngx_idempotency_shm_node_t *
ngx_idempotency_shm_create_node(ngx_idempotency_shm_ctx_t *ctx,
    u_char *digest, uint64_t now)
{
    ngx_idempotency_shm_node_t  *node;

    node = ngx_idempotency_shm_alloc(ctx, sizeof(ngx_idempotency_shm_node_t),
                                     now);
    if (node == NULL) {
        return NULL;
    }

    ngx_memzero(node, sizeof(ngx_idempotency_shm_node_t));

    ngx_memcpy(&node->node.key, digest, sizeof(ngx_rbtree_key_t));
    ngx_memcpy(node->digest, digest + sizeof(ngx_rbtree_key_t),
               NGX_IDEMPOTENCY_SHM_DIGEST_REST);

    return node;
}


/* "kept" is left: an answer is dropped after its state, not before */

static void
ngx_idempotency_shm_set_fields(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, ngx_idempotency_stored_t *stored)
{
    ctx->sh->fence = ngx_max(ctx->sh->fence, stored->fence);

    ngx_memcpy(node->owner, stored->owner, NGX_IDEMPOTENCY_OWNER_LEN);
    ngx_memcpy(node->fingerprint, stored->fingerprint,
               NGX_IDEMPOTENCY_FINGERPRINT_SUM);
    ngx_memcpy(node->how,
               stored->fingerprint + NGX_IDEMPOTENCY_FINGERPRINT_SUM,
               sizeof(node->how));

    node->fence = stored->fence;
    node->lease = stored->lease;
    node->issued = stored->issued;
    node->created = stored->created;
    node->attempts = stored->attempts;
    node->keep = stored->keep;
    node->tombstone = stored->tombstone;
    node->status = stored->status;
}


void
ngx_idempotency_shm_write(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, ngx_idempotency_stored_t *stored,
    ngx_idempotency_change_e change)
{
    uint64_t  due, done;

    due = ngx_idempotency_transition_due(stored);

    if (change == NGX_IDEMPOTENCY_TOUCHED) {
        ngx_idempotency_shm_set_fields(ctx, node, stored);

        if (stored->state == NGX_IDEMPOTENCY_NONE) {
            ngx_idempotency_shm_expiry_move(ctx, node, due);
        }

        return;
    }

    /* change == NGX_IDEMPOTENCY_MOVED */

    switch (stored->state) {

    case NGX_IDEMPOTENCY_NONE:

        /* the time of a stub would be too short for what it was before */

        ngx_idempotency_shm_set_state(ctx, node, stored->state);
        ngx_idempotency_shm_set_fields(ctx, node, stored);
        ngx_idempotency_shm_expiry_move(ctx, node, due);
        break;

    case NGX_IDEMPOTENCY_DONE:
    case NGX_IDEMPOTENCY_TOMBSTONE:

        /* a torn change leaves the lease of what is executing as it was */

        done = stored->lease;
        stored->lease = node->lease;

        ngx_idempotency_shm_set_fields(ctx, node, stored);
        ngx_idempotency_shm_expiry_move(ctx, node, due);
        ngx_idempotency_shm_set_state(ctx, node, stored->state);

        stored->lease = done;
        node->lease = done;
        break;

    default: /* ISSUED, EXECUTING, UNKNOWN */

        if (node->state == NGX_IDEMPOTENCY_EXECUTING
            && stored->state != NGX_IDEMPOTENCY_ISSUED)
        {
            /* a torn change must not look alive */

            node->lease = ngx_min(node->lease, stored->lease);
            ngx_idempotency_shm_set_state(ctx, node, NGX_IDEMPOTENCY_UNKNOWN);
        }

        ngx_idempotency_shm_set_fields(ctx, node, stored);
        ngx_idempotency_shm_set_state(ctx, node, stored->state);
        ngx_idempotency_shm_expiry_move(ctx, node, due);
        break;
    }

    if (!stored->kept) {
        ngx_idempotency_shm_answer_free(ctx, node);
    }
}


/*
 * Nothing is expired to make room: a note is not worth the time with the mutex
 * held.
 */

void
ngx_idempotency_shm_note_write(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, const ngx_str_t *note)
{
    ngx_idempotency_shm_note_t  *old, *new;

    old = node->note;
    new = NULL;

    if (note->len) {

        if (old && note->data == old->data) {
            return;
        }

        if (note->len <= NGX_IDEMPOTENCY_NOTE_LEN) {
            new = ngx_slab_alloc_locked(ctx->shpool,
                                     ngx_idempotency_shm_note_size(note->len));
        }

        if (new) {
            new->len = (uint16_t) note->len;
            ngx_memcpy(new->data, note->data, note->len);
        }
    }

    ngx_memory_barrier();

    ngx_idempotency_shm_point();

    node->note = new;

    ngx_memory_barrier();

    ngx_idempotency_shm_point();

    if (old) {
        ngx_slab_free_locked(ctx->shpool, old);
    }
}


/* a power of two, as the rebuild of a zone wants it */

size_t
ngx_idempotency_shm_note_size(size_t len)
{
    size_t  size;

    size = 32;

    while (size < offsetof(ngx_idempotency_shm_note_t, data) + len) {
        size <<= 1;
    }

    return size;
}


static void
ngx_idempotency_shm_set_state(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, ngx_idempotency_state_e state)
{
    node->generation = ++ctx->sh->generation;

    ngx_memory_barrier();

    ngx_idempotency_shm_point();

    ctx->sh->states[node->state]--;
    ctx->sh->states[state]++;

    node->state = (u_char) state;

    ngx_memory_barrier();

    ngx_idempotency_shm_point();
}


/* a node all of whose fields are set becomes one of the zone */

static void
ngx_idempotency_shm_link(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, uint64_t due)
{
    ngx_idempotency_shm_sh_t  *sh;

    sh = ctx->sh;

    ngx_idempotency_shm_insert_trees(ctx, node, due);

    node->generation = ++sh->generation;
    node->next = sh->records;
    node->prev = &sh->records;

    if (node->next) {
        node->next->prev = &node->next;
    }

    ngx_memory_barrier();

    ngx_idempotency_shm_point();

    sh->records = node;

    ngx_memory_barrier();

    ngx_idempotency_shm_point();
}


void
ngx_idempotency_shm_insert_trees(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, uint64_t due)
{
    ngx_rbtree_t               tree;
    ngx_rbtree_key_t           key;
    ngx_idempotency_shm_sh_t  *sh;

    sh = ctx->sh;
    key = node->node.key;

    ngx_idempotency_shm_tree(ctx, key, &tree);
    ngx_rbtree_insert(&tree, &node->node);
    sh->roots[key & sh->mask] = tree.root;

    ngx_idempotency_shm_point();

    ngx_idempotency_shm_expiry_insert(ctx, node, due);

    sh->number++;
    sh->states[node->state]++;
}


void
ngx_idempotency_shm_remove(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node)
{
    ngx_rbtree_t               tree;
    ngx_rbtree_key_t           key;
    ngx_idempotency_shm_sh_t  *sh;

    sh = ctx->sh;
    key = node->node.key;

    *node->prev = node->next;

    ngx_memory_barrier();

    ngx_idempotency_shm_point();

    if (node->next) {
        node->next->prev = node->prev;
    }

    sh->number--;
    sh->states[node->state]--;

    ngx_idempotency_shm_tree(ctx, key, &tree);
    ngx_rbtree_delete(&tree, &node->node);
    sh->roots[key & sh->mask] = tree.root;

    ngx_idempotency_shm_expiry_remove(ctx, node);

    ngx_idempotency_shm_point();

    ngx_idempotency_shm_answer_free(ctx, node);

    if (node->note) {
        ngx_slab_free_locked(ctx->shpool, node->note);
    }

    ngx_slab_free_locked(ctx->shpool, node);
}


ngx_uint_t
ngx_idempotency_shm_in_sequence(ngx_idempotency_shm_ctx_t *ctx, u_char *digest)
{
    u_char                       mark[NGX_IDEMPOTENCY_DIGEST_LEN];
    ngx_idempotency_shm_node_t  *node;

    ngx_idempotency_shm_mark_digest(mark, digest);

    node = ngx_idempotency_shm_lookup(ctx, mark);

    return node && node->state == NGX_IDEMPOTENCY_SHM_MARK;
}


/* the digests of a mark and of its records begin with the same half */

static void
ngx_idempotency_shm_mark_digest(u_char *mark, u_char *digest)
{
    ngx_memzero(mark, NGX_IDEMPOTENCY_DIGEST_LEN);
    ngx_memcpy(mark, digest, NGX_IDEMPOTENCY_DIGEST_LEN / 2);
}


ngx_idempotency_shm_node_t *
ngx_idempotency_shm_mark_find(ngx_idempotency_shm_ctx_t *ctx, u_char *digest,
    ngx_idempotency_mark_t *mark, uint64_t now)
{
    u_char                        name[NGX_IDEMPOTENCY_DIGEST_LEN];
    ngx_idempotency_stored_t      stored;
    ngx_idempotency_shm_node_t   *node;
    ngx_idempotency_shm_count_t   count;

    ngx_idempotency_shm_mark_digest(name, digest);

    node = ngx_idempotency_shm_find(ctx, name, &stored, now);

    if (node == NULL) {
        ngx_memzero(mark, sizeof(ngx_idempotency_mark_t));
        return NULL;
    }

    ngx_memcpy(&count, node->fingerprint + node->status * sizeof(count),
               sizeof(count));

    mark->epoch = count.epoch;
    mark->next = count.next;
    mark->until = node->lease;
    mark->exists = 1;

    return node;
}


ngx_idempotency_shm_node_t *
ngx_idempotency_shm_mark_insert(ngx_idempotency_shm_ctx_t *ctx, u_char *digest,
    ngx_idempotency_mark_t *mark, uint64_t now)
{
    u_char                        name[NGX_IDEMPOTENCY_DIGEST_LEN];
    ngx_idempotency_shm_node_t   *node;
    ngx_idempotency_shm_count_t   count;

    ngx_idempotency_shm_mark_digest(name, digest);

    node = ngx_idempotency_shm_create_node(ctx, name, now);
    if (node == NULL) {
        return NULL;
    }

    /* as before the claim: its record is written first */

    count.epoch = mark->epoch;
    count.next = mark->next - 1;

    ngx_memcpy(node->fingerprint, &count, sizeof(count));

    node->lease = mark->until;
    node->state = NGX_IDEMPOTENCY_SHM_MARK;

    ngx_idempotency_shm_link(ctx, node, mark->until);

    return node;
}


/* one count is valid at every instant: the other one is written */

void
ngx_idempotency_shm_mark_write(ngx_idempotency_shm_node_t *node,
    ngx_idempotency_mark_t *mark)
{
    uint16_t                      i;
    ngx_idempotency_shm_count_t   count;

    i = !node->status;

    count.epoch = mark->epoch;
    count.next = mark->next;

    ngx_memcpy(node->fingerprint + i * sizeof(count), &count, sizeof(count));

    ngx_memory_barrier();

    ngx_idempotency_shm_point();

    node->status = i;
    node->lease = mark->until;

    ngx_memory_barrier();

    ngx_idempotency_shm_point();
}


ngx_idempotency_shm_node_t *
ngx_idempotency_shm_last_find(ngx_idempotency_shm_ctx_t *ctx, u_char *digest,
    ngx_idempotency_last_t *last, uint64_t now)
{
    ngx_idempotency_stored_t     stored;
    ngx_idempotency_shm_node_t  *node;

    node = ngx_idempotency_shm_find(ctx, digest, &stored, now);

    if (node == NULL || node->state != NGX_IDEMPOTENCY_SHM_LAST) {
        return NULL;
    }

    ngx_memcpy(last->record, node->fingerprint, NGX_IDEMPOTENCY_DIGEST_LEN);
    ngx_memcpy(last->owner, node->owner, NGX_IDEMPOTENCY_OWNER_LEN);

    last->made = (uint64_t) node->created;
    last->until = node->lease;

    return node;
}


/*
 * If the process dies in here the node may name no record: then nothing is
 * suspected once a lease is over.
 */

ngx_int_t
ngx_idempotency_shm_last_write(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, u_char *digest,
    ngx_idempotency_last_t *last, uint64_t now)
{
    ngx_uint_t  found;

    found = (node != NULL);

    if (!found) {
        node = ngx_idempotency_shm_create_node(ctx, digest, now);
        if (node == NULL) {
            return NGX_ERROR;
        }

        node->state = NGX_IDEMPOTENCY_SHM_LAST;
    }

    ngx_memcpy(node->fingerprint, last->record, NGX_IDEMPOTENCY_DIGEST_LEN);
    ngx_memcpy(node->owner, last->owner, NGX_IDEMPOTENCY_OWNER_LEN);

    node->created = (int64_t) last->made;
    node->lease = last->until;

    if (found) {
        ngx_idempotency_shm_expiry_move(ctx, node, last->until);

    } else {
        ngx_idempotency_shm_link(ctx, node, last->until);
    }

    return NGX_OK;
}


/* tree by tree, and by digest within a tree */

ngx_idempotency_shm_node_t *
ngx_idempotency_shm_next(ngx_idempotency_shm_ctx_t *ctx, u_char *digest,
    ngx_uint_t *last)
{
    u_char                      *rest;
    ngx_rbtree_t                 tree;
    ngx_rbtree_key_t             key;
    ngx_rbtree_node_t           *node, *found;
    ngx_idempotency_shm_node_t  *n;

    ngx_memcpy(&key, digest, sizeof(ngx_rbtree_key_t));
    rest = digest + sizeof(ngx_rbtree_key_t);

    ngx_idempotency_shm_tree(ctx, key, &tree);

    found = NULL;
    node = tree.root;

    while (node != tree.sentinel) {

        if (ngx_idempotency_shm_compare(key, rest, node) < 0) {
            found = node;
            node = node->left;

        } else {
            node = node->right;
        }
    }

    if (found == NULL) {
        key &= ctx->sh->mask;
        *last = (key == ctx->sh->mask);
        key++;

        ngx_memcpy(digest, &key, sizeof(ngx_rbtree_key_t));
        ngx_memzero(rest, NGX_IDEMPOTENCY_SHM_DIGEST_REST);

        return NULL;
    }

    n = ngx_rbtree_data(found, ngx_idempotency_shm_node_t, node);

    ngx_memcpy(digest, &found->key, sizeof(ngx_rbtree_key_t));
    ngx_memcpy(rest, n->digest, NGX_IDEMPOTENCY_SHM_DIGEST_REST);

    return n;
}


/*
 * The tree for this key.  After a change the caller writes its root back to
 * sh->roots.  The tree is not in the zone because of its function: another
 * process may have the module at another address.
 */

static void
ngx_idempotency_shm_tree(ngx_idempotency_shm_ctx_t *ctx, ngx_rbtree_key_t key,
    ngx_rbtree_t *tree)
{
    tree->root = ctx->sh->roots[key & ctx->sh->mask];
    tree->sentinel = &ctx->sh->sentinel;
    tree->insert = ngx_idempotency_shm_insert_value;
}


static ngx_int_t
ngx_idempotency_shm_compare(ngx_rbtree_key_t key, u_char *rest,
    ngx_rbtree_node_t *node)
{
    ngx_idempotency_shm_node_t  *n;

    if (key != node->key) {
        return (key < node->key) ? -1 : 1;
    }

    n = ngx_rbtree_data(node, ngx_idempotency_shm_node_t, node);

    return ngx_memcmp(rest, n->digest, NGX_IDEMPOTENCY_SHM_DIGEST_REST);
}


static void
ngx_idempotency_shm_insert_value(ngx_rbtree_node_t *temp,
    ngx_rbtree_node_t *node, ngx_rbtree_node_t *sentinel)
{
    ngx_rbtree_node_t           **p;
    ngx_idempotency_shm_node_t   *n;

    n = ngx_rbtree_data(node, ngx_idempotency_shm_node_t, node);

    for ( ;; ) {

        p = (ngx_idempotency_shm_compare(node->key, n->digest, temp) < 0)
            ? &temp->left : &temp->right;

        if (*p == sentinel) {
            break;
        }

        temp = *p;
    }

    *p = node;
    node->parent = temp;
    node->left = sentinel;
    node->right = sentinel;
    ngx_rbt_red(node);
}
