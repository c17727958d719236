# ngx_http_idempotency_module
#
#   make            build/ngx_http_idempotency_module.so for Debian's nginx
#   make help       this list
#   make run        a gateway with a demo upstream, to try by hand (PORT=)
#   make install    copies the module to nginx's modules directory (DESTDIR=)
#   make debug      the module with directives for tests, in build/debug
#   make clang      the debug module built by clang, in build/clang
#   make clean      removes build/
#
#   make test       all tests, in less than 15 minutes; FILES="t/100-key.t ..."
#                   runs these test files only
#   make lint       layers, form, and that docs and code name the same things
#   make unit       table tests: rules, transitions, bodies, sealing, Redis
#   make model      model checking of the protocol, with SPIN
#   make test-asan  the test files with AddressSanitizer and UBSan (FILES=)
#   make test-redis the tests of Redis with another server binary (REDIS=)
#   make test-sqlite  all test files on SQLite (FILES=)
#   make test-postgres  all test files on PostgreSQL (FILES=)
#   make test-valgrind  some test files under valgrind (FILES=)
#   make test-clients  HTTP clients and SDKs from Debian and npm, with faults
#   make test-all   all of these, in their long forms
#   make fuzz       fuzzes every parser, 10 million inputs each (RUNS=), or
#                   FUZZ_TIME= seconds each; then nginx with hostile clients
#                   and a hostile Redis (REQUESTS=), and with damaged
#                   databases (DATABASES=)
#   make fuzz-short one second for each parser, and 60 databases
#   make trace      the functions that a request runs through, counted
#   make coverage   which lines the test files run, in build/coverage
#
#   make chaos      fault campaigns; writes contribute/evidence.md (CAMPAIGNS=)
#   make clients    as make test-clients; writes docs/clients/tested-clients.md
#   make bench      performance; writes understand/performance.md (QUICK=, ROUNDS=)
#   make sizing     memory per record; writes tables of docs/operate/sizing.md
#   make screenshots  the pictures of the statistics page in docs/
#
#   make vim        highlighting of the directives, in build/vim; copy its
#                   "after" folder to ~/.vim
#   make dist       the release as a tarball with its checksum, in build/dist
#   make deb        a Debian package, in build/deb
#   make test-deb   installs that package, tries it, and purges it again
#
# CC=clang builds with another compiler, NGINX=FILE runs another nginx.

SHELL     := /bin/bash
TOP       := $(abspath .)
BUILD     := $(TOP)/build
MODULE    := ngx_http_idempotency_module.so
NGINX     ?= /usr/sbin/nginx
NGINX_SRC := /usr/share/nginx/src
PORT      ?= 8080

UNITS     := $(patsubst t/unit/%.c,$(BUILD)/unit/%,$(wildcard t/unit/*.c))
SOURCES   := config config.make $(shell find src t/module -type f)

.PHONY: all help debug clang run test lint unit model install bench clean \
        chaos clients coverage deb deps fuzz fuzz-short screenshots sizing \
        test-all test-asan test-clients test-deb test-postgres test-redis test-sqlite test-valgrind

all: $(BUILD)/$(MODULE)

help:
	@sed -n '/^#   make /,/^$$/s/^# \{0,1\}//p' Makefile

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

# What building needs, and what "make lint" and "make test" need besides.
PACKAGES      := nginx nginx-dev libssl-dev libhiredis-dev libsqlite3-dev \
                 libpq-dev gcc
LINT_PACKAGES := binutils lua5.1 lua-check
TEST_PACKAGES := chromium chromium-driver clang curl $(LINT_PACKAGES) \
                 libtest-base-perl openssl perl postgresql procps prometheus python3 \
                 python3-psycopg \
                 redis-server spin sqlite3 $(shell cat examples/*/packages)

deps:
	@t/tools/install $(PACKAGES)

test: all debug $(UNITS)
	@t/tools/install $(TEST_PACKAGES)
	@t/tools/npm
	@TEST_NGINX_BINARY=$(NGINX) t/tools/run $(FILES)

# Another version of Redis, or Valkey; what it cannot do is skipped by name.
REDIS ?= redis-server

test-redis: all debug
	@t/tools/install $(TEST_PACKAGES)
	@t/tools/npm
	@TEST_NGINX_BINARY=$(NGINX) TEST_REDIS_SERVER=$(REDIS) \
	 t/tools/run --redis $(FILES)

# "make test" runs some of these files on SQLite, see t/tools/run.
test-sqlite: all debug
	@t/tools/install $(TEST_PACKAGES)
	@t/tools/npm
	@TEST_NGINX_BINARY=$(NGINX) t/tools/run --sqlite $(FILES)

test-postgres: all debug
	@t/tools/install $(TEST_PACKAGES)
	@t/tools/npm
	@TEST_NGINX_BINARY=$(NGINX) t/tools/run --postgres $(FILES)

# Clients as people have them, and the programs of docs/clients/guide.md.  What
# cannot be had is reported as not run.  Three minutes, most of them waiting.
CLIENT_PACKAGES := default-jdk-headless golang-go \
                   golang-github-hashicorp-go-retryablehttp-dev \
                   python3-requests python3-urllib3

test-clients clients: all debug
	@t/tools/install curl openssl procps python3 redis-server
	@for package in $(CLIENT_PACKAGES); do t/tools/install $$package; done; true
	@t/tools/npm clients
	@TEST_NGINX_BINARY=$(NGINX) python3 -B t/clients \
	    $(if $(filter clients,$@),--write) \
	    $(if $(CLIENTS),--only="$(CLIENTS)")

# Longer forms of the campaigns, and the same once more with sanitizers.
test-all: export KILLS := 200
test-all: export FAULTS := 100
test-all: export MOVES := 20
test-all: export FAILOVERS := 40
test-all: export EVERY := 1
test-all: export TEST_TIMEOUT := 3600
test-all: test test-clients test-sqlite test-postgres test-deb model fuzz-short test-asan

# nginx and the module with sanitizers; the files do not know the difference.
ASAN_PACKAGES := dpkg-dev libpcre2-dev zlib1g-dev
FUZZ_PACKAGES := $(TEST_PACKAGES) $(ASAN_PACKAGES) libclang-rt-dev \
                 libjansson-dev

$(BUILD)/asan/$(MODULE): $(SOURCES) t/tools/sanitized-nginx \
                         t/tools/leaks.c | deps
	@t/tools/install $(ASAN_PACKAGES)
	@echo "building build/asan/nginx"
	@t/tools/sanitized-nginx $(BUILD)/asan

LEAKS     := $(TOP)/t/tools/lsan.supp
SANITIZED = ASAN_OPTIONS=detect_odr_violation=0,detect_leaks=1,quarantine_size_mb=16 \
            LSAN_OPTIONS=suppressions=$(LEAKS),print_suppressions=0 \
            UBSAN_OPTIONS=halt_on_error=1,print_stacktrace=1 \
            TEST_NGINX_BINARY=$(BUILD)/asan/nginx \
            TEST_NGINX_LOAD_MODULES=$(BUILD)/asan/$(MODULE)

test-asan: debug $(BUILD)/asan/$(MODULE)
	@t/tools/install $(TEST_PACKAGES)
	@t/tools/npm
	@$(SANITIZED) t/tools/run $(or $(FILES),$(wildcard t/[0-9]*))

# Debian's own nginx; the drivers in Python look for workers by name, which
# valgrind hides.
VALGRIND_FILES := t/100-key.t t/120-fingerprint.t t/130-request-body.t \
                  t/140-problem-answers.t t/150-replay.t \
                  t/200-store-operations.t t/201-stored-bytes.t

test-valgrind: all debug
	@t/tools/install $(TEST_PACKAGES) valgrind
	@TEST_NGINX_BINARY=$(NGINX) \
	 t/tools/valgrind $(or $(FILES),$(VALGRIND_FILES))

# The debug module with counters; Debian's nginx, all test files, both stores.
$(BUILD)/coverage/$(MODULE): CC := gcc --coverage
$(BUILD)/coverage/$(MODULE): $(SOURCES) | deps
	$(call build,$(BUILD)/coverage,YES,-Og)

coverage: $(BUILD)/coverage/$(MODULE) debug
	@t/tools/install $(TEST_PACKAGES) lcov
	@t/tools/npm
	@TEST_NGINX_BINARY=$(NGINX) TEST_NGINX_LOAD_MODULES=$< \
	 t/tools/coverage $(or $(FILES),$(wildcard t/[0-9]*))

# The functions that a request runs through, see t/tools/trace.
.PHONY: trace

$(BUILD)/trace/$(MODULE): $(SOURCES) | deps
	$(call build,$(BUILD)/trace,NO,-finstrument-functions)

trace: $(BUILD)/trace/$(MODULE)
	@t/tools/install python3 redis-server
	@TEST_NGINX_BINARY=$(NGINX) t/tools/trace $<

# Everything that reads outside bytes, see t/fuzz/fuzz.h.
$(BUILD)/fuzz/libnginx.a: $(SOURCES) t/tools/sanitized-nginx | deps
	@t/tools/install $(FUZZ_PACKAGES)
	@echo "building build/fuzz/libnginx.a"
	@t/tools/sanitized-nginx $(BUILD)/fuzz fuzz

fuzz: $(BUILD)/fuzz/libnginx.a $(BUILD)/asan/$(MODULE)
	@t/fuzz/run $(TARGETS)
	@$(SANITIZED) python3 -B t/fuzz/hostile.py
	@$(SANITIZED) python3 -B t/fuzz/damaged.py

fuzz-short: export FUZZ_TIME := 1
fuzz-short: export DATABASES := 60
fuzz-short: $(BUILD)/fuzz/libnginx.a debug
	@prove --exec '' t/fuzz/run
	@TEST_NGINX_BINARY=$(NGINX) prove --exec 'python3 -B' t/fuzz/damaged.py

# CAMPAIGNS="C1 C7" runs some of them, CHAOS_N=1000 more injections than 300,
# CHAOS_ATTEMPTS=100000 less of C0 than a million, CHAOS_SEED=7 other ones,
# STORES="sqlite" one of the stores only.
CHAOS_PACKAGES := e2fsprogs faketime fuse3 libfuse3-dev mount pkg-config

chaos: all debug
	@t/tools/install $(TEST_PACKAGES) $(CHAOS_PACKAGES)
	@TEST_NGINX_BINARY=$(NGINX) python3 -B t/chaos \
	    $(if $(CAMPAIGNS),--campaigns="$(CAMPAIGNS)") \
	    $(if $(STORES),--stores="$(STORES)") \
	    $(CHAOS_N:%=--n %) $(CHAOS_ATTEMPTS:%=--attempts %) \
	    $(CHAOS_SEED:%=--seed %) $(CHAOS_JOBS:%=--jobs %)

sizing: all debug
	@t/tools/install $(TEST_PACKAGES)
	@TEST_NGINX_BINARY=$(NGINX) t/tools/sizing

lint: all debug
	@t/tools/install $(LINT_PACKAGES)
	@t/tools/lint $(BUILD)/$(MODULE) $(BUILD)/debug/$(MODULE)

unit: $(UNITS)
	@prove -q --exec '' $(UNITS)

# Parts alone, without nginx; its headers are found as the module does.
PARTS_policy := request/ngx_http_idempotency_policy.c
PARTS_grpc   := $(PARTS_policy)
PARTS_first_sent := $(PARTS_policy)
PARTS_body   := $(foreach part,body_tree canonical form json json_string \
                  number,body/ngx_idempotency_$(part).c)
PARTS_json   := $(PARTS_body)
PARTS_jsonrpc := body/ngx_idempotency_jsonrpc.c
PARTS_multipart := $(foreach part,multipart multipart_part,\
                     body/ngx_idempotency_$(part).c)
PARTS_seal   := store/ngx_idempotency_seal.c
PARTS_note   := store/ngx_idempotency_note.c $(PARTS_seal)
PARTS_transition := store/ngx_idempotency_transition.c
PARTS_granted := $(PARTS_transition)
PARTS_suspect := $(PARTS_transition)
PARTS_trouble := store/ngx_idempotency_trouble.c
PARTS_slot   := redis/ngx_idempotency_redis_slot.c
PARTS_spool  := store/redis/ngx_idempotency_redis_spool.c
PARTS_info   := redis/ngx_idempotency_redis_info.c
PARTS_quorum := redis/ngx_idempotency_redis_quorum.c

.SECONDEXPANSION:
$(UNITS): $(BUILD)/unit/%: t/unit/%.c t/unit/policy.h t/unit/transition.h $$(addprefix src/,$$(PARTS_$$*)) $(BUILD)/$(MODULE)
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
	@t/tools/install gcc python3 spin
	@t/model/run --stories

# Half an hour, on a machine that does nothing else; ROUNDS=30 gives
# better medians, QUICK=1 ROUNDS=1 shows in two minutes that it works.
BENCH_PACKAGES := libnginx-mod-http-lua lua-nginx-redis openssl python3 \
                  redis-server valgrind wrk

bench: all debug
	@t/tools/install $(BENCH_PACKAGES)
	@command -v npm >/dev/null || t/tools/install nodejs npm
	@TEST_NGINX_BINARY=$(NGINX) python3 t/bench $(ROUNDS:%=--rounds %) \
	    $(if $(QUICK),--quick)

# The pictures in docs/.
screenshots: all debug
	@t/tools/install chromium chromium-driver pngquant python3 redis-server
	@t/tools/screenshots

install: all
	install -D -m 644 $(BUILD)/$(MODULE) \
	    $(DESTDIR)/usr/lib/nginx/modules/$(MODULE)

.PHONY: vim

vim:
	@mkdir -p $(BUILD)/vim/after/syntax
	@t/tools/vim > $(BUILD)/vim/after/syntax/nginx.vim
	@echo "build/vim/after/syntax/nginx.vim"

# What is committed, and nothing else: two clones of one commit make the same
# bytes.
VERSION := $(shell sed -n 's/^\#define NGX_HTTP_IDEMPOTENCY_VERSION *"\(.*\)"/\1/p' \
                   src/ngx_http_idempotency.h)
RELEASE := ngx_http_idempotency_module-$(VERSION)

.PHONY: dist

dist:
	@t/tools/install git gzip
	@test -z "$$(git status --porcelain)" \
	    || { echo "commit or stash first: make dist packs HEAD"; exit 1; }
	@mkdir -p $(BUILD)/dist
	@git -c tar.umask=0022 archive --format=tar --prefix=$(RELEASE)/ HEAD \
	    | gzip -9n > $(BUILD)/dist/$(RELEASE).tar.gz
	@cd $(BUILD)/dist && sha256sum $(RELEASE).tar.gz > $(RELEASE).tar.gz.sha256
	@cat $(BUILD)/dist/$(RELEASE).tar.gz.sha256

# The files that a package is made of, and nothing else of this folder.
DEB_FILES := CHANGES LICENSE README.md config config.make debian docs src \
             t/module

deb: $(BUILD)/deb/built

$(BUILD)/deb/built: $(SOURCES) README.md $(shell find debian docs -type f) | deps
	@t/tools/install build-essential debhelper fakeroot
	@echo "building the package in build/deb"
	@rm -rf $(@D) && mkdir -p $(@D)/source
	@cp -r --parents $(DEB_FILES) $(@D)/source
	@cd $(@D)/source \
	    && DEB_BUILD_OPTIONS="noautodbgsym parallel=2" \
	       dpkg-buildpackage --build=binary --unsigned-changes \
	           > ../build.log 2>&1 \
	    || { tail -20 $(@D)/build.log; exit 1; }
	@touch $@

test-deb: all deb
	@t/tools/install curl lintian
	@t/tools/deb

run: all
	@t/tools/install curl
	@t/tools/demo/run $(NGINX) $(BUILD)/$(MODULE) $(PORT)

clean:
	rm -rf $(BUILD) t/servroot*
