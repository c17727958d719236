# ngx_http_idempotency_module
#
#   make            build/ngx_http_idempotency_module.so for Debian's nginx
#   make run        a gateway with a demo upstream, to try it by hand
#   make test       everything that proves it
#   make install    copies the module to nginx's modules directory
#   make bench      CPU per request beside a bare proxy_pass
#
# CC=clang and NGINX_SRC=DIR (a configured nginx source tree, for "make
# module") are honoured.

SHELL     := /bin/bash
TOP       := $(abspath .)
BUILD     := $(TOP)/build
MODULE    := ngx_http_idempotency_module.so
NGINX     ?= /usr/sbin/nginx
NGINX_SRC := /usr/share/nginx/src
PORT      ?= 8080

SOURCES   := config $(shell find src -name '*.[ch]' -o -name '*.map')

.PHONY: all debug run test test-quick install bench clean lint unit deps

all: $(BUILD)/$(MODULE)

debug: $(BUILD)/debug/$(MODULE)

# $(1): folder, $(2): IDEMPOTENCY_DEBUG, $(3): further compiler flags
define build
@echo "building $(1:$(TOP)/%=%)/$(MODULE)"
@mkdir -p $(1)
@. $(NGINX_SRC)/conf_flags && cd $(NGINX_SRC) \
    && cc_opt=$$($(NGINX) -V 2>&1 \
                 | sed -n "s/.*--with-cc-opt='\([^']*\)'.*/\1/p") \
    && IDEMPOTENCY_DEBUG=$(2) ./configure "$${NGX_CONF_FLAGS[@]}" \
           --with-cc="$(CC)" --with-cc-opt="$$cc_opt -Wextra $(3)" \
           --builddir=$(1)/objs --add-dynamic-module=$(TOP) \
           > $(1)/configure.log 2>&1 \
    || { tail -20 $(1)/configure.log; exit 1; }
@$(MAKE) --no-print-directory -j2 -C $(NGINX_SRC) -f $(1)/objs/Makefile modules > $(1)/make.log 2>&1 \
    || { grep -A 3 -E ': (fatal )?(error|warning)' $(1)/make.log \
             || tail -20 $(1)/make.log; exit 1; }
@cp $(1)/objs/$(MODULE) $(1)/$(MODULE)
endef

$(BUILD)/$(MODULE): $(SOURCES) | deps
	$(call build,$(BUILD),NO,)

$(BUILD)/debug/$(MODULE): $(SOURCES) | deps
	$(call build,$(BUILD)/debug,YES,)

# What building needs; "make test" and "make bench" ask for more.
PACKAGES := nginx nginx-dev libssl-dev gcc

deps:
	@t/install $(PACKAGES)

install: all
	install -D -m 644 $(BUILD)/$(MODULE) \
	    $(DESTDIR)/usr/lib/nginx/modules/$(MODULE)

run: all
	@t/demo/run $(NGINX) $(BUILD)/$(MODULE) $(PORT)

clean:
	rm -rf $(BUILD) t/servroot*
