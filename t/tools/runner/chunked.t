# As failing.t: every block must fail. Here the chunked encoding of the response
# is broken, as it is when the server gives up in the middle. These blocks have
# a file of their own since Test::Nginx cannot call add_response_body_check
# without a response.

use Test::Nginx::Socket 'no_plan';

no_shuffle();
run_tests();

__DATA__

=== TEST 1: the response ends within a chunk
--- config
    location /t {
        proxy_http_version 1.1;
        proxy_pass http://127.0.0.1:$TEST_NGINX_RAND_PORT_1;
    }
--- tcp_listen: $TEST_NGINX_RAND_PORT_1
--- tcp_reply eval
"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel"
--- request
GET /t
--- fails
chunk
status code ok



=== TEST 2: the response has no last chunk
--- config
    location /t {
        proxy_http_version 1.1;
        proxy_pass http://127.0.0.1:$TEST_NGINX_RAND_PORT_1;
    }
--- tcp_listen: $TEST_NGINX_RAND_PORT_1
--- tcp_reply eval
"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n"
--- request
GET /t
--- response_body chomp
hel
--- fails
chunk
status code ok
response_body - response is expected
