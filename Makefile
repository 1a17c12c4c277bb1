# What one can do here. `make` alone prints this list; CONTRIBUTING.md says more.
.DEFAULT_GOAL := help
.PHONY: help demo test interop nginx storm planted conformance bench loom miri fuzz lint coherence callgrind doc

export PATH := $(CURDIR)/target/tools/bin:$(PATH):$(HOME)/.cargo/bin

SEEDS   ?= 0..10000
SECONDS ?= 60

help: ## print this list
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "make %-12s %s\n", $$1, $$2}' Makefile

demo: ## connections made on Laneway in an in-memory network, beside the kernel's loopback; needs no privilege
	@scripts/need.sh rust
	cargo run --release --bin laneway -- demo

test: ## everything that CI runs; says at the end how many steps passed, failed, were skipped
	@scripts/test.sh

interop: ## real clients (curl, ab, wrk, h2load, nmap, …) through a TUN device; needs root
	@scripts/need.sh rust clients
	cargo build --release --bin laneway
	cargo build --release -p laneway --features axum --example axum_tls
	@crates/cli/tests/interop.sh
	@scripts/some.sh cargo test -q --workspace --all-features --test tun --test stopped --test any_stream --test any_datagram -- --ignored --nocapture

nginx: ## what a connection costs the whole machine, beside nginx on the kernel; needs root, and that nothing else runs
	@scripts/need.sh rust nginx
	cargo build --release --bin laneway
	@crates/cli/tests/beside_nginx.sh

storm: ## simulated networks by seed: SEEDS=0..10000
	@scripts/need.sh rust
	cargo run --release -p laneway-sim --bin storm -- --seeds $(SEEDS)

planted: ## protocol bugs, planted one at a time, that storm must find
	@scripts/need.sh rust
	@crates/sim/planted/run.sh

conformance: ## packet scripts against a lane
	@scripts/need.sh rust
	cargo test -p laneway-conformance

bench: ## connections, requests and bulk data per second, beside smoltcp and the kernel
	@scripts/need.sh rust
	cargo build --release --bin laneway --bin laneway-lab
	cargo run --release --bin laneway -- bench crr --conns 1,10,100,1000 --peer smoltcp --peer linux
	cargo run --release --bin laneway -- bench rr --conns 1,100 --peer smoltcp --peer linux
	cargo run --release --bin laneway -- bench stream --conns 1 --peer smoltcp --peer linux

loom: ## every interleaving of the primitives in sync
	@RUSTFLAGS="--cfg laneway_loom" CARGO_TARGET_DIR=target/loom \
	    scripts/some.sh cargo test -p laneway-sync --release --lib loom

# Of table only the bucket is unsafe, and only what works with it is of use here.
miri: ## undefined behaviour in sync and table, under the interpreter; needs a nightly toolchain
	@scripts/need.sh rust miri
	CARGO_TARGET_DIR=target/miri cargo +nightly miri test -p laneway-sync --lib
	CARGO_TARGET_DIR=target/miri scripts/some.sh \
	    cargo +nightly miri test -p laneway-table --lib -- bucket:: handle_table::tests::behaves

fuzz: ## every fuzz target for SECONDS=60; needs a nightly toolchain
	@scripts/need.sh rust fuzz
	@scripts/fuzz.sh $(SECONDS)

lint: ## format, clippy, crate edges, invariants of absence, links
	@scripts/need.sh rust
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings
	cargo run -q -p laneway-tools --bin edges
	cargo run -q -p laneway-tools --bin lint-tree

coherence: ## locked instructions, shared lines and heap calls of a connection, counted by valgrind; minutes
	@scripts/need.sh rust valgrind
	cargo build --release -p laneway-lab
	$${CARGO_TARGET_DIR:-target}/release/laneway-lab coherence

callgrind: ## instructions per operation, where they go, and what the seam of sharing costs
	@scripts/need.sh rust valgrind
	crates/lab/callgrind.sh crr
	crates/lab/callgrind.sh rr
	crates/stack/seam.sh

doc: ## the documentation of every crate, in target/doc
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --all-features --no-deps
