
/*
 * The embedded store: the queue of nodes by the time at which they expire.
 *
 * Nodes that are due within the same 64 ms form a list, in no order, and one
 * of them is in a tree.  Nodes that are inserted together thus take the same
 * path through the tree, which is in the processor's cache then, and nodes
 * that are due together are taken from a list.
 *
 * A node in a list has "data" set, expire.left is the next node and
 * expire.right the one before.  The list begins at "same" of the node in the
 * tree.
 */


#include "ngx_idempotency_shm_expiry.h"


/* 64 milliseconds: a node may be found so much too late */
#define NGX_IDEMPOTENCY_SHM_MOMENT   6

#define ngx_idempotency_shm_moment(due)                                       \
    ((uint64_t) (due) >> NGX_IDEMPOTENCY_SHM_MOMENT)

#define ngx_idempotency_shm_expire_node(n)                                    \
    (ngx_rbtree_data(n, ngx_idempotency_shm_node_t, expire))


static void ngx_idempotency_shm_expiry_join(ngx_rbtree_node_t *first,
    ngx_rbtree_node_t *expire);
static void ngx_idempotency_shm_expiry_link(ngx_rbtree_node_t *prev,
    ngx_rbtree_node_t *next);
static void ngx_idempotency_shm_expiry_replace(ngx_rbtree_t *tree,
    ngx_rbtree_node_t *expire, ngx_rbtree_node_t *heir);


void
ngx_idempotency_shm_expiry_insert(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, uint64_t due)
{
    uint64_t                   moment;
    ngx_rbtree_node_t         *first;
    ngx_idempotency_shm_sh_t  *sh;

    sh = ctx->sh;

    sh->due = ngx_min(sh->due, due);

    node->expire.key = due;

    moment = ngx_idempotency_shm_moment(due);
    first = sh->expire.root;

    while (first != sh->expire.sentinel) {

        if (moment == ngx_idempotency_shm_moment(first->key)) {
            ngx_idempotency_shm_expiry_join(first, &node->expire);
            return;
        }

        first = (due < first->key) ? first->left : first->right;
    }

    node->same = NULL;
    node->expire.data = 0;

    ngx_rbtree_insert(&sh->expire, &node->expire);
}


static void
ngx_idempotency_shm_expiry_join(ngx_rbtree_node_t *first,
    ngx_rbtree_node_t *expire)
{
    expire->data = 1;

    ngx_idempotency_shm_point();

    ngx_idempotency_shm_expiry_link(expire,
                               ngx_idempotency_shm_expire_node(first)->same);
    ngx_idempotency_shm_expiry_link(first, expire);
}


/* "prev" is in the tree or in a list, "next" is in a list or NULL */

static void
ngx_idempotency_shm_expiry_link(ngx_rbtree_node_t *prev,
    ngx_rbtree_node_t *next)
{
    if (prev->data) {
        prev->left = next;

    } else {
        ngx_idempotency_shm_expire_node(prev)->same = next;
    }

    if (next) {
        next->right = prev;
    }
}


void
ngx_idempotency_shm_expiry_move(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node, uint64_t due)
{
    if (node->expire.key == due) {
        return;
    }

    /* a torn move leaves a key of 0, see rebuild_trees() */

    ngx_idempotency_shm_expiry_remove(ctx, node);

    ngx_idempotency_shm_point();

    ngx_idempotency_shm_expiry_insert(ctx, node, due);
}


void
ngx_idempotency_shm_expiry_remove(ngx_idempotency_shm_ctx_t *ctx,
    ngx_idempotency_shm_node_t *node)
{
    ngx_rbtree_node_t  *expire;

    expire = &node->expire;

    if (expire->data) {
        ngx_idempotency_shm_expiry_link(expire->right, expire->left);

    } else if (node->same) {
        ngx_idempotency_shm_expiry_replace(&ctx->sh->expire, expire,
                                           node->same);

    } else {
        ngx_rbtree_delete(&ctx->sh->expire, expire);
    }

    expire->key = 0;
}


/* the first node in the list takes the place in the tree */

static void
ngx_idempotency_shm_expiry_replace(ngx_rbtree_t *tree,
    ngx_rbtree_node_t *expire, ngx_rbtree_node_t *heir)
{
    ngx_rbtree_node_t  *next;

    next = heir->left;

    heir->left = expire->left;
    heir->right = expire->right;
    heir->parent = expire->parent;
    heir->data = 0;
    ngx_rbt_copy_color(heir, expire);

    if (expire == tree->root) {
        tree->root = heir;

    } else if (expire == expire->parent->left) {
        expire->parent->left = heir;

    } else {
        expire->parent->right = heir;
    }

    if (heir->left != tree->sentinel) {
        heir->left->parent = heir;
    }

    if (heir->right != tree->sentinel) {
        heir->right->parent = heir;
    }

    ngx_idempotency_shm_point();

    ngx_idempotency_shm_expiry_link(heir, next);
}


ngx_idempotency_shm_node_t *
ngx_idempotency_shm_expiry_next(ngx_idempotency_shm_ctx_t *ctx, uint64_t now)
{
    ngx_rbtree_t                *tree;
    ngx_rbtree_node_t           *min;
    ngx_idempotency_shm_node_t  *node;

    if (now < ctx->sh->due) {
        return NULL;
    }

    tree = &ctx->sh->expire;

    if (tree->root == tree->sentinel) {
        ctx->sh->due = (uint64_t) -1;
        return NULL;
    }

    min = ngx_rbtree_min(tree->root, tree->sentinel);
    node = ngx_idempotency_shm_expire_node(min);

    if (node->same) {
        node = ngx_idempotency_shm_expire_node(node->same);
    }

    if (now < node->expire.key) {
        ctx->sh->due = node->expire.key;
        return NULL;
    }

    return node;
}
