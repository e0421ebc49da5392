#!/usr/bin/env bash
# Builds the binary and what is made by it into target/dist, and packages for which a tool is
# installed (cargo-deb, cargo-generate-rpm). Asks nothing.
#
#   packaging/build.sh            all that can be built here
#   packaging/build.sh dist       only target/dist
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
dist=target/dist
profile=${PROFILE:-release}

cargo build --locked --profile "$profile" --bin handoffd
folder=$profile
[ "$profile" = dev ] && folder=debug
mkdir -p "$dist/bin" "$dist/completions" "$dist/man"
rm -f "$dist/completions/"* "$dist/man/"*
install -m 755 "$target/$folder/handoffd" "$dist/bin/handoffd"

handoffd=$dist/bin/handoffd
"$handoffd" completions bash >"$dist/completions/handoffd.bash"
"$handoffd" completions zsh >"$dist/completions/_handoffd"
"$handoffd" completions fish >"$dist/completions/handoffd.fish"
"$handoffd" man --out "$dist/man"
gzip -9n "$dist/man/"*

if [ "${1:-all}" = dist ]; then
    exit 0
fi
if cargo deb --version >/dev/null 2>&1; then
    cargo deb --no-build --no-strip
else
    echo "no .deb: cargo install cargo-deb" >&2
fi
if cargo generate-rpm --version >/dev/null 2>&1; then
    cargo generate-rpm
else
    echo "no .rpm: cargo install cargo-generate-rpm" >&2
fi
