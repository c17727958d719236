# The scripts of the store in Redis as strings of C; nginx's auto/make reads
# this file.

ngx_idempotency_store=$ngx_addon_dir/src/store
ngx_idempotency_scripts=$ngx_idempotency_store/redis/scripts
ngx_idempotency_header=$NGX_OBJS/ngx_idempotency_redis_scripts.h

cat << END                                                    >> $NGX_MAKEFILE

$NGX_OBJS/addon/redis/ngx_idempotency_redis_command.$ngx_objext:	\\
	$ngx_idempotency_header

$ngx_idempotency_header:	$ngx_idempotency_scripts/embed \\
	`echo $ngx_idempotency_scripts/*.lua $ngx_idempotency_scripts/parts/*.lua` \\
	$ngx_idempotency_store/ngx_idempotency_record.h \\
	$ngx_idempotency_store/ngx_idempotency_store.h \\
	$ngx_idempotency_store/redis/ngx_idempotency_redis_op.h
	sh $ngx_idempotency_scripts/embed > \$@.new
	mv \$@.new \$@

END
