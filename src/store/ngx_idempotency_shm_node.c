
/*
 * The embedded store: records in the zone.
 */


#include "ngx_idempotency_shm_answer.h"
#include "ngx_idempotency_shm_time.h"


_Static_assert(sizeof(ngx_idempotency_shm_node_t)
               == NGX_IDEMPOTENCY_SHM_NODE_SIZE,
               "a record must fill its slab slot");

_Static_assert(NGX_IDEMPOTENCY_FINGERPRINT_LEN
               == NGX_IDEMPOTENCY_FINGERPRINT_SUM
                  + sizeof(((ngx_idempotency_shm_node_t *) 0)->how),
               "a record has room for how its fingerprint was made");


static void ngx_idempotency_shm_tree(ngx_idempotency_shm_ctx_t *ctx,
    ngx_rbtree_key_t key, ngx_rbtree_t *tree);
static ngx_int_t ngx_idempotency_shm_compare(ngx_rbtree_key_t key,
    u_char *rest, ngx_rbtree_node_t *node);
static void ngx_idempotency_shm_insert_value(ngx_rbtree_node_t *temp,
    ngx_rbtree_node_t *node, ngx_rbtree_node_t *sentinel);


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


/* the digests of a mark and of its records begin with the same half */

void
ngx_idempotency_shm_mark_digest(u_char *mark, u_char *digest)
{
    ngx_memzero(mark, NGX_IDEMPOTENCY_DIGEST_LEN);
    ngx_memcpy(mark, digest, NGX_IDEMPOTENCY_DIGEST_LEN / 2);
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


/* by trees, and by digest within a tree; a tree begins at its number */

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
 * The tree that has the record of this key, if there is one.  Its root goes
 * back to sh->roots after a change.  The function is not in the zone: another
 * process may have the module elsewhere in its memory.
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


void
ngx_idempotency_shm_insert(ngx_idempotency_shm_ctx_t *ctx,
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

    ngx_idempotency_shm_time_insert(ctx, node, due);

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

    ngx_idempotency_shm_time_remove(ctx, node);

    ngx_idempotency_shm_point();

    ngx_idempotency_shm_free_answer(ctx, node);

    ngx_slab_free_locked(ctx->shpool, node);
}
