# One Makefile behind ./x. Everything built lies in $(B); a newcomer calls ./x, not make.
#   make                 the command, the libraries and the plugins
#   make test T=arena    the unit tests, or those whose name has T in it
#   make SAN=address,undefined test      make SAN=thread test
#   make CROSS=x86_64-linux-gnu-         (or aarch64-linux-gnu-) a cross build in its own folder
CC      ?= cc
SAN     ?=
CROSS   ?=
WERROR  ?=
B       ?= build$(if $(CROSS),/$(patsubst %-,%,$(CROSS)))$(if $(SAN),/san-$(subst $(comma),-,$(SAN)))
comma   := ,
ifneq ($(CROSS),)
CC      := $(CROSS)gcc
endif
ARCH    := $(shell $(CC) -dumpmachine | cut -d- -f1)

OPT     ?= -O2
CFLAGS  ?= -g
XCFLAGS  = -std=c11 -D_GNU_SOURCE -Isrc -Iinclude -fPIC -fvisibility=hidden $(OPT) -fno-math-errno -ffp-contract=off \
           -Wall -Wextra -Wpedantic -Wno-missing-field-initializers $(if $(WERROR),-Werror) \
           $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer) -MMD -MP
# Kernels want the vectoriser; what each needs beyond $(OPT) is said here.
CFLAGS_dtype = -O3
# Products in a micro-kernel are fused with the sum they go into, by design; nowhere else.
CFLAGS_gemm_generic = -O3 -ffp-contract=fast
CFLAGS_gemm_neon = -O3 -ffp-contract=fast
CFLAGS_gemm_bf16 = -O3 -march=armv8.2-a+bf16
CFLAGS_gemm_avx2 = -O3 -ffp-contract=fast -mavx2 -mfma -mf16c
CFLAGS_gemm_avx512 = -O3 -ffp-contract=fast -mavx512f -mavx512vl -mavx512dq -mavx512bw -mfma -mf16c -mprefer-vector-width=512
CFLAGS_gemm_avx512_bf16 = $(CFLAGS_gemm_avx512) -mavx512bf16
LIBS     = -lyaml -lsodium -lzstd -lpthread -ldl -lm

layers  := base ir pass pjrt lane guard cpu train cli
layer    = $(filter-out %_test.c %_main.c,$(wildcard src/$(1)/*.c) $(wildcard src/$(1)/*/*.c) $(wildcard src/$(1)/arch/$(ARCH)/*.c))
src_c   := $(filter-out $(foreach d,$(wildcard src/*/arch/*),$(if $(filter %/$(ARCH),$(d)),,$(wildcard $(d)/*.c))),$(foreach l,$(layers),$(sort $(call layer,$(l)))))
obj      = $(patsubst src/%.c,$(B)/obj/%.o,$(filter $(foreach l,$(1),src/$(l)/%),$(src_c)))

core    := base ir pass pjrt lane train
all: $(B)/xlane $(B)/libxlane.a $(B)/libxlane.so $(if $(wildcard src/cpu/*.c),$(B)/libxlane-cpu.so) $(if $(wildcard src/guard/*.c),$(B)/libxlane-guard.so)

$(B)/obj/%.o: src/%.c
	@mkdir -p $(@D)
	$(CC) $(XCFLAGS) $(CFLAGS) $(CFLAGS_$(notdir $*)) -c $< -o $@

$(B)/xlane: $(call obj,$(core) cli)
	$(CC) $(XCFLAGS) $(CFLAGS) $^ -o $@ $(LIBS)
$(B)/libxlane.a: $(call obj,$(core))
	rm -f $@ && $(CROSS)ar rcs $@ $^
$(B)/libxlane.so: $(call obj,$(core))
	$(CC) $(XCFLAGS) $(CFLAGS) -shared $^ -o $@ $(LIBS)
$(B)/libxlane-cpu.so: $(call obj,base ir pass cpu)
	$(CC) $(XCFLAGS) $(CFLAGS) -shared $^ -o $@ $(LIBS)
$(B)/libxlane-guard.so: $(call obj,base ir pass pjrt lane guard)
	$(CC) $(XCFLAGS) $(CFLAGS) -shared $^ -o $@ $(LIBS)

# A test program takes what it needs of all layers (but the command's main) from one archive.
$(B)/test/all.a: $(filter-out $(B)/obj/cli/main.o,$(call obj,$(layers)))
	@mkdir -p $(@D)
	rm -f $@ && $(CROSS)ar rcs $@ $^
test_c  := $(wildcard src/*/*_test.c)
tests   := $(patsubst src/%.c,$(B)/test/%,$(if $(T),$(foreach t,$(test_c),$(if $(findstring $(T),$(t)),$(t))),$(test_c)))
$(B)/test/%: $(B)/obj/%.o $(B)/test/all.a
	@mkdir -p $(@D)
	$(CC) $(XCFLAGS) $(CFLAGS) $^ -o $@ $(LIBS)
.PRECIOUS: $(B)/obj/%.o
build-tests: $(tests)
test: $(tests)
	@fail=0; for t in $(tests); do echo "== $$t"; $(RUN) $$t || fail=1; done; exit $$fail

# Programs that measure; each is bench/<name>.c and prints a table.
$(B)/bench/%: bench/%.c $(call obj,base ir pass cpu)
	@mkdir -p $(@D)
	$(CC) $(XCFLAGS) $(CFLAGS) $^ -o $@ $(LIBS)
bench: $(patsubst bench/%.c,$(B)/bench/%,$(wildcard bench/*.c))

clean:
	rm -rf $(B)
.PHONY: all test build-tests bench clean
-include $(shell find $(B) -name '*.d' 2>/dev/null)
