
/*
 * Messages of JSON-RPC: where the id is, byte for byte.
 */


#ifndef _NGX_IDEMPOTENCY_JSONRPC_H_INCLUDED_
#define _NGX_IDEMPOTENCY_JSONRPC_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/* what a message has besides, as bits */
#define NGX_IDEMPOTENCY_JSONRPC_METHOD  0x01
#define NGX_IDEMPOTENCY_JSONRPC_RESULT  0x02    /* or an error */


/*
 * Finds the id of one message: "id" is its text as it stands there, with the
 * quotes of a string, or empty if there is none.  NGX_OK; NGX_DECLINED when
 * the text is not an object, has a second id, or one of the names is written
 * with escapes.  Values are skipped, not checked: what was accepted here need
 * not be JSON, but if it is JSON, the id is what it says.
 */
ngx_int_t ngx_idempotency_jsonrpc_id(const ngx_str_t *text, ngx_str_t *id,
    ngx_uint_t *has);


#endif /* _NGX_IDEMPOTENCY_JSONRPC_H_INCLUDED_ */
