# ngx_http_idempotency_module
#
#   make            build/ngx_http_idempotency_module.so for Debian's nginx
#   make run        a gateway with a demo upstream, to try it by hand
#   make test       everything that proves it, in less than 15 minutes
#   make lint       the rules of form, and that docs name what the code has
#   make unit       the table tests of rules, bodies and sealing
#   make model      the protocol, under all that can happen, by SPIN
#   make debug      the module with directives for tests, in build/debug
#   make install    copies the module to nginx's modules directory
#   make deb        a Debian package, in build/deb
#   make test-deb   installs that package, tries it, and purges it again
#   make test-asan  the test files with AddressSanitizer and UBSan
#   make test-all   all of these, at length
#   make test-redis REDIS=FILE  the tests of Redis with another redis-server
#   make test-valgrind  some test files with Debian's nginx under valgrind
#   make fuzz       every parser with 10 million inputs (RUNS=), or for
#                   FUZZ_TIME= seconds each; then all of it in nginx, with
#                   hostile clients and a hostile Redis (REQUESTS=)
#   make coverage   which lines the test files run, in build/coverage
#   make screenshots   the pictures in docs/, of the page for people
#   make bench      what it costs beside a bare proxy_pass and beside others
#   make sizing     what a record takes; writes tables of docs/operations.md
#   make chaos      the campaigns, in their long form; writes docs/evidence.md
#
# CC=clang builds with another compiler, NGINX=FILE runs another nginx.
# "make test FILES=t/100-key.t" runs some tests only.

SHELL     := /bin/bash
TOP       := $(abspath .)
BUILD     := $(TOP)/build
MODULE    := ngx_http_idempotency_module.so
NGINX     ?= /usr/sbin/nginx
NGINX_SRC := /usr/share/nginx/src
PORT      ?= 8080

UNITS     := $(patsubst t/unit/%.c,$(BUILD)/unit/%,$(wildcard t/unit/*.c))
SOURCES   := config $(shell find src -type f)

.PHONY: all debug clang run test lint unit model install bench clean deps \
        coverage deb fuzz fuzz-short test-all test-asan test-deb \
        test-redis test-valgrind

all: $(BUILD)/$(MODULE)

debug: $(BUILD)/debug/$(MODULE)

# $(1): folder, $(2): IDEMPOTENCY_DEBUG, $(3): more flags
define build
@echo "building $(1:$(TOP)/%=%)/$(MODULE)"
@mkdir -p $(1)
@. $(NGINX_SRC)/conf_flags && cd $(NGINX_SRC) \
    && cc_opt=$$($(NGINX) -V 2>&1 \
                 | sed -n "s/.*--with-cc-opt='\([^']*\)'.*/\1/p") \
    && IDEMPOTENCY_DEBUG=$(2) ./configure "$${NGX_CONF_FLAGS[@]}" \
           --with-cc="$(CC)" \
           --with-cc-opt="$$cc_opt -Wextra -Wno-unused-parameter $(3)" \
           --builddir=$(1)/objs --add-dynamic-module=$(TOP) \
           > $(1)/configure.log 2>&1 \
    || { tail -20 $(1)/configure.log; exit 1; }
@$(MAKE) --no-print-directory -j2 -C $(NGINX_SRC) -f $(1)/objs/Makefile \
    modules > $(1)/make.log 2>&1 \
    || { grep -A 3 -E ': (fatal )?(error|warning)' $(1)/make.log \
             || tail -20 $(1)/make.log; exit 1; }
@cp --remove-destination $(1)/objs/$(MODULE) $(1)/$(MODULE)
endef

$(BUILD)/$(MODULE): $(SOURCES) | deps
	$(call build,$(BUILD),NO)

$(BUILD)/debug/$(MODULE): $(SOURCES) | deps
	$(call build,$(BUILD)/debug,YES)

$(BUILD)/clang/$(MODULE): $(SOURCES) | deps
	$(call build,$(BUILD)/clang,YES)

clang: CC := clang
clang: $(BUILD)/clang/$(MODULE)

# What building needs, and what "make test" needs besides.
PACKAGES      := nginx nginx-dev libssl-dev libhiredis-dev gcc
TEST_PACKAGES := binutils chromium chromium-driver clang curl \
                 libtest-base-perl openssl perl procps prometheus python3 \
                 redis-server spin $(shell cat examples/*/packages)

deps:
	@t/install $(PACKAGES)

test: all debug $(UNITS)
	@t/install $(TEST_PACKAGES)
	@t/npm
	@TEST_NGINX_BINARY=$(NGINX) t/run $(FILES)

# Another version of Redis, or Valkey; what it cannot do is skipped by name.
REDIS ?= redis-server

test-redis: all debug
	@t/install $(TEST_PACKAGES)
	@t/npm
	@TEST_NGINX_BINARY=$(NGINX) TEST_REDIS_SERVER=$(REDIS) \
	 t/run --redis $(FILES)

# Longer forms of the campaigns, and the same once more with sanitizers.
test-all: export KILLS := 200
test-all: export FAULTS := 100
test-all: export MOVES := 20
test-all: export FAILOVERS := 40
test-all: export EVERY := 1
test-all: export TEST_TIMEOUT := 3600
test-all: test test-deb model fuzz-short test-asan

# nginx and the module with sanitizers; the files do not know the difference.
ASAN_PACKAGES := dpkg-dev libpcre2-dev zlib1g-dev
FUZZ_PACKAGES := $(TEST_PACKAGES) $(ASAN_PACKAGES) libclang-rt-dev \
                 libjansson-dev

$(BUILD)/asan/$(MODULE): $(SOURCES) t/sanitized-nginx t/leaks.c | deps
	@t/install $(ASAN_PACKAGES)
	@echo "building build/asan/nginx"
	@t/sanitized-nginx $(BUILD)/asan

SANITIZED = ASAN_OPTIONS=detect_odr_violation=0,detect_leaks=1,quarantine_size_mb=16 \
            LSAN_OPTIONS=suppressions=$(TOP)/t/lsan.supp,print_suppressions=0 \
            UBSAN_OPTIONS=halt_on_error=1,print_stacktrace=1 \
            TEST_NGINX_BINARY=$(BUILD)/asan/nginx \
            TEST_NGINX_LOAD_MODULES=$(BUILD)/asan/$(MODULE)

test-asan: debug $(BUILD)/asan/$(MODULE)
	@t/install $(TEST_PACKAGES)
	@t/npm
	@$(SANITIZED) t/run $(or $(FILES),$(wildcard t/[0-9]*))

# Debian's own nginx; the drivers in Python look for workers by name, which
# valgrind hides.
VALGRIND_FILES := t/100-key.t t/120-fingerprint.t t/130-body.t \
                  t/140-answers.t t/150-replay.t t/200-store.t t/201-bodies.t

test-valgrind: all debug
	@t/install $(TEST_PACKAGES) valgrind
	@TEST_NGINX_BINARY=$(NGINX) t/valgrind $(or $(FILES),$(VALGRIND_FILES))

# The debug module with counters; Debian's nginx, all test files, both stores.
$(BUILD)/coverage/$(MODULE): CC := gcc --coverage
$(BUILD)/coverage/$(MODULE): $(SOURCES) | deps
	$(call build,$(BUILD)/coverage,YES,-Og)

coverage: $(BUILD)/coverage/$(MODULE) debug
	@t/install $(TEST_PACKAGES) lcov
	@t/npm
	@TEST_NGINX_BINARY=$(NGINX) TEST_NGINX_LOAD_MODULES=$< \
	 t/coverage $(or $(FILES),$(wildcard t/[0-9]*))

# Everything that reads outside bytes, see t/fuzz/fuzz.h.
$(BUILD)/fuzz/libnginx.a: $(SOURCES) t/sanitized-nginx | deps
	@t/install $(FUZZ_PACKAGES)
	@echo "building build/fuzz/libnginx.a"
	@t/sanitized-nginx $(BUILD)/fuzz fuzz

fuzz: $(BUILD)/fuzz/libnginx.a $(BUILD)/asan/$(MODULE)
	@t/fuzz/run $(TARGETS)
	@$(SANITIZED) python3 -B t/fuzz/hostile.py

fuzz-short: export FUZZ_TIME := 1
fuzz-short: $(BUILD)/fuzz/libnginx.a
	@prove --exec '' t/fuzz/run

# CAMPAIGNS="C1 C7" runs some of them, CHAOS_N=1000 more injections than 300,
# CHAOS_ATTEMPTS=100000 less of C0 than a million, CHAOS_SEED=7 other ones.
CHAOS_PACKAGES := faketime

.PHONY: chaos

chaos: all debug
	@t/install $(TEST_PACKAGES) $(CHAOS_PACKAGES)
	@TEST_NGINX_BINARY=$(NGINX) python3 -B t/chaos \
	    $(if $(CAMPAIGNS),--campaigns="$(CAMPAIGNS)") \
	    $(CHAOS_N:%=--n %) $(CHAOS_ATTEMPTS:%=--attempts %) \
	    $(CHAOS_SEED:%=--seed %) $(CHAOS_JOBS:%=--jobs %)

.PHONY: sizing

sizing: all debug
	@t/install $(TEST_PACKAGES)
	@TEST_NGINX_BINARY=$(NGINX) t/sizing

lint: all debug
	@t/lint $(BUILD)/$(MODULE) $(BUILD)/debug/$(MODULE)

unit: $(UNITS)
	@prove -q --exec '' $(UNITS)

# Parts alone, without nginx; its headers are found as the module does.
PARTS_policy := request/ngx_http_idempotency_policy.c
PARTS_grpc   := $(PARTS_policy)
PARTS_body   := $(foreach part,canonical doc form json json_string number,\
                  request/ngx_http_idempotency_$(part).c)
PARTS_json   := $(PARTS_body)
PARTS_multipart := $(foreach part,multipart multipart_part,\
                     request/ngx_http_idempotency_$(part).c)
PARTS_seal   := store/ngx_idempotency_seal.c
PARTS_slot   := redis/ngx_idempotency_redis_slot.c
PARTS_left   := store/ngx_idempotency_redis_left.c
PARTS_info   := redis/ngx_idempotency_redis_info.c

.SECONDEXPANSION:
$(UNITS): $(BUILD)/unit/%: t/unit/%.c t/unit/policy.h $$(addprefix src/,$$(PARTS_$$*)) $(BUILD)/$(MODULE)
	@echo "building build/unit/$*"
	@mkdir -p $(@D)
	@incs=$$(sed -n '/^ALL_INCS/,/^$$/{s/^ALL_INCS = //;s/\\$$//;p}' \
	             $(BUILD)/objs/Makefile) \
	    && cd $(NGINX_SRC) \
	    && $(CC) -g -O1 -Wall -Wextra -Wno-unused-parameter -Werror \
	           -fsanitize=address,undefined -fno-sanitize-recover \
	           $$incs $(TOP)/$< $(PARTS_$*:%=$(TOP)/src/%) -lcrypto -o $@

# Two minutes, most of them for four attempts at a time.
model:
	@t/install gcc python3 spin
	@t/model/run --stories

# Half an hour, on a machine that does nothing else; ROUNDS=30 gives
# better medians, QUICK=1 ROUNDS=1 shows in two minutes that it works.
BENCH_PACKAGES := libnginx-mod-http-lua lua-nginx-redis openssl python3 \
                  redis-server valgrind wrk

bench: all debug
	@t/install $(BENCH_PACKAGES)
	@command -v npm >/dev/null || t/install nodejs npm
	@TEST_NGINX_BINARY=$(NGINX) python3 t/bench $(ROUNDS:%=--rounds %) \
	    $(if $(QUICK),--quick)

# The pictures in docs/.
.PHONY: screenshots

screenshots: all debug
	@t/install chromium chromium-driver pngquant python3 redis-server
	@t/screenshots

install: all
	install -D -m 644 $(BUILD)/$(MODULE) \
	    $(DESTDIR)/usr/lib/nginx/modules/$(MODULE)

# The files that a package is made of, and nothing else of this folder.
DEB_FILES := CHANGES LICENSE README.md config debian docs src

deb: $(BUILD)/deb/built

$(BUILD)/deb/built: $(SOURCES) README.md $(shell find debian docs -type f) | deps
	@t/install build-essential debhelper fakeroot
	@echo "building the package in build/deb"
	@rm -rf $(@D) && mkdir -p $(@D)/source
	@cp -r $(DEB_FILES) $(@D)/source
	@cd $(@D)/source \
	    && DEB_BUILD_OPTIONS="noautodbgsym parallel=2" \
	       dpkg-buildpackage --build=binary --unsigned-changes \
	           > ../build.log 2>&1 \
	    || { tail -20 $(@D)/build.log; exit 1; }
	@touch $@

test-deb: all deb
	@t/install curl lintian
	@t/deb

run: all
	@t/install curl
	@t/demo/run $(NGINX) $(BUILD)/$(MODULE) $(PORT)

clean:
	rm -rf $(BUILD) t/servroot*
