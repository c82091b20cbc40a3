# One Makefile behind ./x. Everything built lies in $(B); a newcomer calls ./x, not make.
#   make                 the command, the libraries and the plugins
#   make test T=arena    the unit tests, or those whose name has T in it
#   make SAN=address,undefined test      make SAN=thread test
#   make CROSS=x86_64-linux-gnu-         (or aarch64-linux-gnu-) a cross build in its own folder
#   make install PREFIX=/usr/local       make bundle (a relocatable tarball)
# A file src/<layer>/<x>.c belongs to its layer's libraries. <x>_test.c and <x>_fuzz.c are programs; <x>_main.c has the
# entry points of its layer's library (GetPjrtApi) and is in no other.
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

OPT     ?= $(if $(SAN),-O1,-O2)
# Lines for backtraces; for a debugger CFLAGS=-g, which takes a compiler a quarter longer.
CFLAGS  ?= -g1
XCFLAGS  = -std=c11 -D_GNU_SOURCE -Isrc -Iinclude -fPIC -fvisibility=hidden $(OPT) -fno-math-errno -ffp-contract=off \
           -Wall -Wextra -Wpedantic -Wno-missing-field-initializers \
           $(if $(SAN),$(sanflags),$(forgotten) $(if $(WERROR),-Werror)) -MMD -MP
# A function that no header or table declares, a case of an enumeration that no switch has: something was forgotten.
forgotten = -Werror=missing-prototypes -Werror=switch
# gcc warns of things that only the sanitizers' own code does, so warnings are no errors there.
sanflags = -fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer $(if $(FUZZ),-fsanitize=fuzzer-no-link)
LDFLAGS ?=
XLDFLAGS = $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/../lib:$$ORIGIN' $(if $(SAN),,-Wl,-z,defs)
# A flag, if this compiler knows it.
knows    = $(shell echo | $(CC) -Werror $(1) -x c -c - -o /dev/null 2>/dev/null && echo $(1))
# Kernels want the vectoriser; what each needs beyond $(OPT) is said here.
CFLAGS_dtype = -O3
# Nobody looks at the floating-point flags; without that promise comparisons are not vectorised.
CFLAGS_ew = -O3 -fno-trapping-math
CFLAGS_ew_float = -O3 -fno-trapping-math
CFLAGS_ew_int = -O3
CFLAGS_reduce = -O3
CFLAGS_sort = -O3
CFLAGS_gather = -O3
CFLAGS_fold_generic = -O3 -fno-trapping-math
CFLAGS_fold_avx2 = $(CFLAGS_gemm_avx2) -fno-trapping-math
CFLAGS_fold_avx512 = $(CFLAGS_gemm_avx512) -fno-trapping-math
CFLAGS_fft_generic = -O2 -fno-trapping-math
CFLAGS_fft_avx2 = $(CFLAGS_fold_avx2) -O2
CFLAGS_fft_avx512 = $(CFLAGS_fold_avx512) -O2
CFLAGS_strided = -O3
CFLAGS_spectral = -O3 -fno-trapping-math
# Rows of a few elements are copied in place there, not by a call of memmove for each.
CFLAGS_tile_run = -O3 $(call knows,-fno-tree-loop-distribute-patterns)
# Products in a micro-kernel or a polynomial are fused with the sum they go into, by design; nowhere else.
CFLAGS_vmath_generic = -O3 -ffp-contract=fast
CFLAGS_vmath_avx2 = $(CFLAGS_gemm_avx2)
CFLAGS_vmath_avx512 = $(CFLAGS_gemm_avx512)
# A strip instruction is one op: none has two to fuse but those of vmath.
CFLAGS_strip_generic = -O3 -ffp-contract=fast -fno-trapping-math
CFLAGS_strip_avx2 = $(CFLAGS_gemm_avx2) -fno-trapping-math -mprfchw
CFLAGS_strip_avx512 = $(CFLAGS_gemm_avx512) -fno-trapping-math
CFLAGS_cholesky_generic = -O3 -ffp-contract=fast
CFLAGS_cholesky_avx2 = $(CFLAGS_gemm_avx2)
CFLAGS_cholesky_avx512 = $(CFLAGS_gemm_avx512)
CFLAGS_half_f16c = -O3 -mavx2 -mf16c
CFLAGS_pairs_generic = -O3
CFLAGS_pairs_avx2 = $(CFLAGS_gemm_avx2) -ffp-contract=off
CFLAGS_pairs_avx512 = $(CFLAGS_gemm_avx512) -ffp-contract=off
CFLAGS_conv_generic = -O3 -ffp-contract=fast
CFLAGS_conv_fma = $(CFLAGS_gemm_fma)
CFLAGS_conv_avx2 = $(CFLAGS_gemm_avx2)
CFLAGS_conv_avx512 = $(CFLAGS_gemm_avx512)
CFLAGS_gemm_generic = -O3 -ffp-contract=fast
CFLAGS_gemm_fma = -O3 -ffp-contract=fast -mfma
CFLAGS_gemm_neon = -O3 -ffp-contract=fast
CFLAGS_gemm_bf16 = -O3 -march=armv8.2-a+bf16
CFLAGS_gemm_avx2 = -O3 -ffp-contract=fast -mavx2 -mfma -mf16c
CFLAGS_gemm_avx512 = -O3 -ffp-contract=fast -mavx512f -mavx512vl -mavx512dq -mavx512bw -mfma -mf16c -mprfchw \
    -mprefer-vector-width=512
CFLAGS_gemm_avx512_bf16 = $(CFLAGS_gemm_avx512) -mavx512bf16
CFLAGS_gemm_amx = $(CFLAGS_gemm_avx512_bf16) $(call knows,-mamx-tile -mamx-bf16)
LIBS     = -lyaml -lsodium -lzstd -lpthread -ldl -lm

layers  := base ir pass pjrt lane guard cpu train cli
# src/<layer>/*<suffix>.c and those in the rooms of the layer
in_rooms = $(wildcard src/$(1)/*$(2).c src/$(1)/*/*$(2).c)
layer    = $(filter-out %_test.c %_fuzz.c %_main.c,$(call in_rooms,$(1),) $(wildcard src/$(1)/arch/$(ARCH)/*.c))
foreign := $(foreach d,$(wildcard src/*/arch/*),$(if $(filter %/$(ARCH),$(d)),,$(wildcard $(d)/*.c)))
src_c   := $(filter-out $(foreign),$(foreach l,$(layers),$(sort $(call layer,$(l)))))
obj      = $(patsubst src/%.c,$(B)/obj/%.o,$(filter $(foreach l,$(1),src/$(l)/%),$(src_c)))

core    := base ir pass pjrt lane train
plugins := $(if $(filter src/cpu/%,$(src_c)),$(B)/libxlane-cpu.so) \
           $(if $(filter src/guard/%,$(src_c)),$(B)/libxlane-guard.so) \
           $(if $(wildcard src/guard/preload_main.c),$(B)/libxlane-preload.so)
all: $(B)/xlane $(B)/libxlane.a $(B)/libxlane.so $(plugins) $(B)/libscipy_openblas.so

# What a row of a table wants elsewhere (test/complete.awk): before anything is compiled, the functions of the rows, the
# rows of the functions, and the flags; at the end documentation and tests, which no compiler sees. A tarball without
# docs/ or test/ has no such check.
tables := $(addprefix src/,ir/ops.def pass/passes.def cli/verbs.def train/rungs.def cpu/kernel/ew.def)
complete_code := $(tables) $(wildcard src/cli/*.c src/pass/*.c src/ir/infer/*.c src/cpu/kernel/*.c) \
                 $(wildcard src/cpu/tile/tile*.c) src/cpu/tile/strip.def src/train/rung.c src/train/rung.h \
                 test/ops.covered
complete_rest := $(tables) $(addprefix src/,lane/cause.def lane/retry.def lane/probe.def lane/profile.def) \
                 src/base/variables.def src/train/config.c test/ops.covered test/errors.yaml \
                 $(wildcard src/cli/*.c src/pass/*.c src/*/*_test.c src/*/*/*_test.c docs/*.md) README.md \
                 $(wildcard test/[!_]*.py test/guard/*.py test/*.mlir test/cases/*.mlir)
# Files that may read a variable.
readers := $(filter-out %/variables.def,$(wildcard $(foreach d,src/*/ src/*/*/ src/*/*/*/ include/*/ examples/ wheel/ \
               bench/ test/ test/*/ profiles/,$(addprefix $(d)*.,c h inl def py sh yaml))) x Makefile)
checked := $(and $(wildcard docs/program.md),$(wildcard test/complete.awk))
all: $(if $(checked),$(B)/complete)
$(B)/named: test/complete.awk $(complete_code)
	@mkdir -p $(@D)
	@LC_ALL=C awk -v stage=code -f test/complete.awk $(complete_code) >$@.new || { cat $@.new >&2; exit 1; }
	@mv $@.new $@
$(B)/complete: test/complete.awk $(complete_rest) $(readers) | $(B)/xlane $(plugins)
	@grep -oE '\<XLANE_[A-Z0-9_]*[A-Z0-9]\>' $(readers) /dev/null | sed 's/\(.*\):\(.*\)/\2 \1/' | \
	    LC_ALL=C awk -v stage=rest -f test/complete.awk - $(complete_rest) >$@.new || { cat $@.new >&2; exit 1; }
	@mv $@.new $@
print-complete:
	@echo $($(FILES))

# LAPACK for the embedded device (src/cpu/kernel/openblas.h): OpenBLAS as PyPI has it, one file that needs only libc. If
# it cannot be fetched, the build goes on without it, and the device looks for the system's.
PYTHON  ?= $(firstword $(wildcard build/venv/bin/python) python3)
openblas := build/openblas-$(ARCH)
$(openblas)/libscipy_openblas.so:
	@mkdir -p $(@D)
	@{ $(PYTHON) -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: \
	        --platform manylinux_2_28_$(ARCH) -d $(@D) scipy-openblas32 && \
	    cd $(@D) && $(if $(findstring /,$(PYTHON)),$(abspath $(PYTHON)),$(PYTHON)) -m zipfile \
	        -e scipy_openblas32*.whl . && \
	    cp scipy_openblas32-*.dist-info/licenses/LICENSE.txt . && \
	    mv scipy_openblas32/lib/libscipy_openblas.so . && rm -r scipy_openblas32*; } >$(@D)/log 2>&1 || \
	    echo "no scipy-openblas32 (see $(@D)/log): the CPU device will look for libopenblas.so.0"
$(B)/libscipy_openblas.so: | $(openblas)/libscipy_openblas.so
	@mkdir -p $(@D)
	@if [ -f $(openblas)/libscipy_openblas.so ]; then cp $(openblas)/libscipy_openblas.so $@; fi

# What each shared object exports, and nothing else: the helpers of two of our libraries in one process would otherwise
# clash. test/symbols.py checks the objects.
exports_libxlane         := xl_*
exports_libxlane-cpu     := GetPjrtApi
exports_libxlane-guard   := GetPjrtApi xlane_guard_attach xlane_guard_checks xlane_guard_ended xlane_guard_function \
                            xlane_guard_reading
exports_libxlane-preload := dlsym
node_libxlane            := XLANE_$(shell sed -n 's/.*XL_VERSION "\([0-9]*\.[0-9]*\).*/\1/p' src/base/version.h)
$(B)/gen/%.map: Makefile src/base/version.h
	@mkdir -p $(@D)
	printf '%s { global: %s local: *; };\n' '$(node_$*)' '$(foreach s,$(exports_$*),$(s);)' >$@
shared = -shared -Wl,--version-script=$(B)/gen/$(firstword $(subst .so, ,$(@F))).map -Wl,-soname,$(@F)

c_string = sed 's/\\/\\\\/g; s/"/\\"/g; s/.*/"&\\n"/'
# The built-in profiles, as C strings.
profiles := $(sort $(wildcard profiles/*.yaml))
$(B)/gen/profiles.inc: $(profiles) Makefile
	@mkdir -p $(@D)
	for f in $(profiles); do printf '{ "%s",\n' $$(basename $$f .yaml); $(c_string) $$f; echo '},'; done >$@
$(B)/obj/lane/profile_text.o: $(B)/gen/profiles.inc
$(B)/obj/lane/profile_text.o: XCFLAGS += -I$(B)/gen

# What the CPU plugin tells JAX, as a C string.
$(B)/gen/jax_rules.inc: src/cpu/pjrt/jax_rules.py Makefile
	@mkdir -p $(@D)
	$(c_string) $< >$@
$(B)/obj/cpu/pjrt/python.o: $(B)/gen/jax_rules.inc
$(B)/obj/cpu/pjrt/python.o: XCFLAGS += -I$(B)/gen -Wno-overlength-strings

# Instrumented and vectorised, the kernels of one instruction set would take a compiler ten minutes: they get -O1 with a
# sanitizer, and no sanitizer in fuzzers, which are for readers.
kernel   = $(or $(findstring /arch/,$(1)),$(filter gemm_% vmath_% strip_% fold_%,$(notdir $(1))))
plain    = $(if $(SAN),$(if $(kernel),-O1 $(if $(FUZZ),-fno-sanitize=all)))
# Test programs run once: compiling them well would take longer than running them.
$(B)/obj/%_test.o $(B)/test/%: private override OPT = -O1
$(B)/obj/%.o: src/%.c | $(if $(checked),$(B)/named)
	@mkdir -p $(@D)
	$(CC) $(XCFLAGS) $(CFLAGS) $(CFLAGS_$(notdir $*)) $(call plain,$*) -c $< -o $@

entry    = $(patsubst src/%.c,$(B)/obj/%.o,$(filter-out %/preload_main.c,$(call in_rooms,$(1),_main)))
link     = $(CC) $(XCFLAGS) $(CFLAGS) $(1) $(filter %.o %.a,$^) -o $@ $(XLDFLAGS) $(LIBS)
$(B)/xlane: $(call obj,$(core) cli)
	$(link)
$(B)/libxlane.a: $(call obj,$(core))
	rm -f $@ && $(CROSS)ar rcs $@ $^
# The number of the library's interface: it goes up when a program that was linked before would break (docs/abi.md).
ABI := 0
$(B)/libxlane.so: $(B)/libxlane.so.$(ABI)
	ln -sf $(<F) $@
$(B)/libxlane.so.$(ABI): $(call obj,$(core)) $(B)/gen/libxlane.map
	$(call link,$(shared))
$(B)/libxlane-cpu.so: $(call obj,base ir pass cpu) $(B)/obj/pjrt/options.o $(call entry,cpu) $(B)/gen/libxlane-cpu.map
	$(call link,$(shared))
$(B)/libxlane-guard.so: $(call obj,base ir pass pjrt lane guard) $(call entry,guard) $(B)/gen/libxlane-guard.map
	$(call link,$(shared))
# A sanitizer's runtime looks up symbols before it is ready, through this very object: it stays plain.
$(B)/libxlane-preload.so $(B)/obj/guard/preload_main.o: sanflags =
$(B)/libxlane-preload.so: $(B)/obj/guard/preload_main.o $(B)/gen/libxlane-preload.map
	$(CC) $(XCFLAGS) $(CFLAGS) $(shared) $(filter %.o,$^) -o $@ $(LDFLAGS) -ldl

# A test program takes what it needs of all layers (but the command's main) from one archive.
$(B)/test/all.a: $(filter-out $(B)/obj/cli/main.o,$(call obj,$(layers)))
	@mkdir -p $(@D)
	rm -f $@ && $(CROSS)ar rcs $@ $^
test_c  := $(call in_rooms,*,_test)
named_T  = $(foreach t,$(test_c),$(if $(findstring $(T),$(t)),$(t)))
tests   := $(patsubst src/%.c,$(B)/test/%,$(if $(T),$(named_T),$(test_c)))
$(B)/test/%: XLDFLAGS += -Wl,-rpath,$(abspath $(B))
$(B)/test/%: $(B)/obj/%.o $(B)/test/all.a
	@mkdir -p $(@D)
	$(link)
# A fuzzer links its own layer and those its layer may use, so that one of a reader does not wait for the kernels.
fuzzers := $(patsubst src/%.c,$(B)/fuzz/%,$(call in_rooms,*,$(if $(F),$(F)*)_fuzz))
below_base := base
below_ir   := base ir
below_pjrt := base ir pass pjrt
below_lane := $(below_pjrt) lane
below_guard := $(below_lane) guard
below_cpu  := base ir pass cpu
below_train := $(core)
define fuzz_layer
$(B)/fuzz/$(1).a: $(call obj,$(below_$(1)))
	@mkdir -p $$(@D)
	rm -f $$@ && $$(CROSS)ar rcs $$@ $$^
$(filter $(B)/fuzz/$(1)/%,$(fuzzers)): $(B)/fuzz/%: $(B)/obj/%.o $(B)/fuzz/$(1).a
	@mkdir -p $$(@D)
	$$(call link,-fsanitize=fuzzer)
endef
$(foreach l,$(sort $(foreach f,$(fuzzers),$(word 2,$(subst /, ,$(f:$(B)/%=%))))),$(eval $(call fuzz_layer,$(l))))
build-fuzz: $(fuzzers)
.PRECIOUS: $(B)/obj/%.o
# Plugins with something wrong, for the tests of the probe and of pjrt/; one needs a library that is gone by then.
plugins := $(patsubst test/plugins/%.c,$(B)/test/plugins/%.so,$(filter-out %/gone.c,$(wildcard test/plugins/*.c)))
$(B)/test/plugins/%.so: test/plugins/%.c test/plugins/fake.h test/plugins/wrap.h src/pjrt/abi.h src/pjrt/profiler.h
	@mkdir -p $(@D)
	$(CC) $(XCFLAGS) $(CFLAGS) -shared -fno-sanitize=all $< -o $@
$(B)/test/plugins/dependency.so: test/plugins/dependency.c test/plugins/gone.c
	@mkdir -p $(@D)/gone
	$(CC) $(XCFLAGS) $(CFLAGS) -shared test/plugins/gone.c -o $(@D)/gone/libxlane-test-gone.so
	$(CC) $(XCFLAGS) $(CFLAGS) -shared $< -o $@ -L$(@D)/gone -lxlane-test-gone
	rm -r $(@D)/gone
# Small programs that whole-program tests talk to.
tools   := $(patsubst test/tool/%.c,$(B)/test/tool/%,$(wildcard test/tool/*.c))
$(B)/test/tool/%: test/tool/%.c $(B)/test/all.a
	@mkdir -p $(@D)
	$(CC) $(XCFLAGS) $(CFLAGS) $< $(B)/test/all.a -o $@ $(XLDFLAGS) $(LIBS)
build-tests: $(tests) $(plugins) $(tools) $(B)/libxlane-cpu.so
test: $(tests)
	@fail=0; for t in $(tests); do echo "== $$t"; $(RUN) $$t || fail=1; done; exit $$fail

# Programs that measure; each is bench/<name>.c and prints a table.
$(B)/bench/%: bench/%.c $(B)/test/all.a
	@mkdir -p $(@D)
	$(CC) $(XCFLAGS) $(CFLAGS) $< $(B)/test/all.a -o $@ $(XLDFLAGS) $(LIBS)
build-bench: $(patsubst bench/%.c,$(B)/bench/%,$(wildcard bench/*.c)) $(tools)
bench: build-bench

VERSION := $(shell sed -n 's/.*XL_VERSION "\(.*\)"/\1/p' src/base/version.h)
PREFIX  ?= /usr/local
headers := $(wildcard include/xlane/*.h)
install: all
	mkdir -p $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include/xlane
	install -m 755 $(B)/xlane $(DESTDIR)$(PREFIX)/bin/
	install -m 755 $(B)/libxlane.so.$(ABI) $(filter-out %/libxlane.so,$(wildcard $(B)/*.so)) $(DESTDIR)$(PREFIX)/lib/
	ln -sf libxlane.so.$(ABI) $(DESTDIR)$(PREFIX)/lib/libxlane.so
	install -m 644 $(B)/libxlane.a $(DESTDIR)$(PREFIX)/lib/
	mkdir -p $(DESTDIR)$(PREFIX)/share/xlane/profiles
	install -m 644 $(profiles) $(DESTDIR)$(PREFIX)/share/xlane/profiles/
	$(if $(headers),install -m 644 $(headers) $(DESTDIR)$(PREFIX)/include/xlane/)
	printf '%s\n' 'prefix=$(PREFIX)' 'Name: xlane' 'Description: the XLA training lane in C' 'Version: $(VERSION)' \
	    'Cflags: -I$${prefix}/include' 'Libs: -L$${prefix}/lib -lxlane' 'Libs.private: $(LIBS)' \
	    >$(DESTDIR)$(PREFIX)/lib/pkgconfig/xlane.pc

# One tarball that runs on a bare glibc machine: libraries that are not everywhere are included, under their sonames.
bundle_name := xlane-$(VERSION)-$(ARCH)
bundle-files: all
	rm -rf $(B)/bundle && $(MAKE) --no-print-directory install DESTDIR=$(B)/bundle/ PREFIX=$(bundle_name)
	sed -i 's,^prefix=.*,prefix=$${pcfiledir}/../..,' $(B)/bundle/$(bundle_name)/lib/pkgconfig/xlane.pc
	for l in zstd sodium yaml; do f=$$(readlink -f $$($(CC) -print-file-name=lib$$l.so)) && \
	    soname=$$($(CROSS)readelf -d $$f | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p') && \
	    install -m 644 $$f $(B)/bundle/$(bundle_name)/lib/$$soname || exit 1; done
	cp LICENSE README.md $(B)/bundle/$(bundle_name)/
	if [ -f $(openblas)/LICENSE.txt ]; then cp $(openblas)/LICENSE.txt $(B)/bundle/$(bundle_name)/LICENSE.openblas; fi
bundle: bundle-files
	tar -C $(B)/bundle -czf build/$(bundle_name).tar.gz $(bundle_name)

# ./x lint: a stamp for each file and tool, made again when the file or a header that it includes has changed.
lint_flags := -std=c11 -D_GNU_SOURCE -Isrc -Iinclude -I$(B)/gen
$(B)/lint/%.tidy: src/%.c .clang-tidy
	@mkdir -p $(@D)
	@clang -MM -MP -MT $@ -MF $@.d -w $(lint_flags) $(arch_flags) $<
	@clang-tidy --quiet $< -- $(lint_flags) $(arch_flags) 2>/dev/null && touch $@
# Left out: malloc-leak, for which everything in an arena is one; shift-count-overflow where the kernels shift vectors,
# since gcc 12 takes their number of lanes for the width of a lane.
$(B)/lint/%.analyzer: src/%.c
	@mkdir -p $(@D)
	@$(CC) -fanalyzer -Werror -O1 -DXL_ANALYZER $(lint_flags) $(arch_flags) -Wno-analyzer-malloc-leak $(vectors) \
	    -MMD -MP -MT $@ -MF $@.d -c $< -o /dev/null && touch $@
arch_flags = $(if $(findstring /arch/,$*),$(filter -m%,$(CFLAGS_$(notdir $*))))
vectors    = $(if $(call kernel,$*),-Wno-analyzer-shift-count-overflow)
linted = $(patsubst src/%.c,%,$(src_c) $(call in_rooms,*,_main))
lint-tidy lint-analyzer: lint-%: $(addprefix $(B)/lint/,$(addsuffix .%,$(linted)))

clean:
	rm -rf $(B)
.PHONY: all print-complete test build-tests build-bench bench build-fuzz install bundle bundle-files clean lint-tidy \
    lint-analyzer
-include $(shell find $(B) -name '*.d' -type f 2>/dev/null)
