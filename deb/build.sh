#!/bin/sh
# ./x deb: build/xlane_VERSION_ARCH.deb (the command, the plugins, manual pages, completions, profiles) and libxlane-dev
# (the library to link, its header). Needs dpkg-deb and dpkg-shlibdeps; lintian has no complaint (test/deb.py).
set -eu
cd "$(dirname "$0")/.."
B=${B:-build}
version=$(sed -n 's/.*XL_VERSION "\(.*\)"/\1/p' src/base/version.h)
arch=$(dpkg --print-architecture)
triple=$(gcc -print-multiarch)
out=${1:-build}
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 1700000000)
export SOURCE_DATE_EPOCH
owner="${DEBFULLNAME:-xlane} <${DEBEMAIL:-xlane@example.org}>" # as Debian's tools name who packages it

zipped() { gzip -9n >"$1"; }
doc() { # package: the three files that every package has
    d=$B/deb/$1/usr/share/doc/$1
    mkdir -p "$d"
    printf 'xlane (%s) unstable; urgency=medium\n\n  * CHANGELOG.md says what changed.\n\n -- %s  %s\n' \
        "$version" "$owner" \
        "$(LC_ALL=C date -uRd "@$SOURCE_DATE_EPOCH")" | zipped "$d/changelog.gz"
    cp deb/copyright "$d/copyright"
}
pack() { # package: its rows of deb/control, with what is known only now
    root=$B/deb/$1
    mkdir -p "$root/DEBIAN"
    depends=
    if [ -n "${2:-}" ]; then
        mkdir -p "$B/deb/shlibs/debian" && : >"$B/deb/shlibs/debian/control"
        # shellcheck disable=SC2086
        depends=$(cd "$B/deb/shlibs" && dpkg-shlibdeps -O --ignore-missing-info $2 2>/dev/null |
            sed -n 's/^shlibs:Depends=//p')
    fi
    awk -v RS= -v p="$1" '$0 ~ "(^|\n)Package: " p "\n"' deb/control |
        sed "s/@VERSION@/$version/g; s/@ARCH@/$arch/g; s/@OWNER@/$owner/; s/@SHLIBS@/$depends/
             s/@SIZE@/$(du -sk "$root" | cut -f1)/" >"$root/DEBIAN/control"
    (cd "$root" && find usr -type f | LC_ALL=C sort | xargs md5sum >DEBIAN/md5sums)
    find "$root" -type d -exec chmod 755 {} +
    dpkg-deb --root-owner-group -Zxz -z"${DEB_LEVEL:-6}" --build "$root" "$out/$1_${version}_$arch.deb" >/dev/null
    echo "$out/$1_${version}_$arch.deb"
}

rm -rf "$B/deb"
root=$B/deb/xlane
lib=$root/usr/lib/xlane
mkdir -p "$root/usr/bin" "$lib/bin" "$lib/lib" "$root/usr/share/man/man1" "$root/usr/share/xlane/profiles" \
    "$root/usr/share/bash-completion/completions" "$root/usr/share/zsh/vendor-completions" \
    "$root/usr/share/fish/vendor_completions.d"
install -m 755 "$B/xlane" "$lib/bin/"
install -m 644 "$B"/libxlane-cpu.so "$B"/libxlane-guard.so "$B"/libxlane-preload.so "$lib/lib/"
strip --remove-section=.comment --remove-section=.note "$lib/bin/xlane"
strip --strip-unneeded --remove-section=.comment --remove-section=.note "$lib"/lib/*.so
ln -s ../lib/xlane/bin/xlane "$root/usr/bin/xlane"
install -m 644 profiles/*.yaml "$root/usr/share/xlane/profiles/"
"$B/xlane" completion bash >"$root/usr/share/bash-completion/completions/xlane"
"$B/xlane" completion zsh >"$root/usr/share/zsh/vendor-completions/_xlane"
"$B/xlane" completion fish >"$root/usr/share/fish/vendor_completions.d/xlane.fish"
"$B/xlane" man --troff | zipped "$root/usr/share/man/man1/xlane.1.gz"
for verb in $(sed -n 's/^VERB(\(.*\))/\1/p' src/cli/verbs.def | tr _ -); do
    "$B/xlane" man --troff "$verb" | zipped "$root/usr/share/man/man1/xlane-$verb.1.gz"
done
doc xlane
objects=$(cd "$B" && pwd)/deb/xlane/usr/lib/xlane
built=$objects/lib
pack xlane "$objects/bin/xlane $built/libxlane-cpu.so $built/libxlane-guard.so $built/libxlane-preload.so"

root=$B/deb/libxlane-dev
mkdir -p "$root/usr/include/xlane" "$root/usr/lib/$triple/pkgconfig"
install -m 644 include/xlane/*.h "$root/usr/include/xlane/"
install -m 644 "$B/libxlane.a" "$root/usr/lib/$triple/"
strip --strip-debug --enable-deterministic-archives "$root/usr/lib/$triple/libxlane.a"
printf '%s\n' 'prefix=/usr' 'Name: xlane' 'Description: the XLA training lane in C' "Version: $version" \
    "Cflags: -I\${prefix}/include" \
    "Libs: -L\${prefix}/lib/$triple -lxlane -lyaml -lsodium -lzstd -lpthread -ldl -lm" \
    >"$root/usr/lib/$triple/pkgconfig/xlane.pc"
doc libxlane-dev
pack libxlane-dev
