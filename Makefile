# The two commands: `make demo` and `make test`. `make help` lists the rest.
#
# Run by root, everything is built by root and run by the user vk-test, which is made for it. Run by
# anyone else, it runs as them, with sudo for the set-up only.

SHELL := /bin/bash
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := build
.PHONY: all build release install uninstall check test demo bench long clauses fmt clean help setup

# A toolchain that the set-up installs is found without a new login.
export PATH := $(if $(CARGO_HOME),$(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)
unexport MAKEFLAGS MAKELEVEL

SETUP := scripts/setup
XTASK := cargo run --quiet --package xtask --
# For `make test` and `make long`: the crates whose tests to run, all where it is empty.
ONLY ?=
# For `make long`: the simulator's first seed, and how many.
SEED ?= 1
COUNT ?= 2000
# For `make install`: where the programs lie, and a folder to put that in.
PREFIX ?= /usr/local
DESTDIR ?=
# For `make clauses`: `--missing`, `--missing node`, `--json`.
ARGS ?=

all: check test ## check, then test

build: ## The programs, and the guest's init
	@$(SETUP)/rust.sh
	@$(SETUP)/packages.sh build
	@scripts/build

release: ## The same, optimised: what `make install` installs
	@$(SETUP)/rust.sh
	@$(SETUP)/packages.sh build
	@scripts/build --release

install: ## Programs, units, manual pages, example configurations; PREFIX=/usr/local DESTDIR=
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" scripts/install

uninstall: ## Removes what `make install` put there
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" scripts/install --remove

check: ## Format, house rules, lints, licences and bans of dependencies
	@$(SETUP)/rust.sh
	@$(SETUP)/packages.sh build
	@$(SETUP)/tools.sh cargo-deny
	@scripts/check

test: ## All set-up, then every test; ONLY="vk-step vk-trace" for some crates
	@scripts/test $(ONLY)

long: ## The tests with more seeds, boots and patience, fuzzers optimised; SEED= and COUNT= for the simulator
	@VK_LONG=1 VK_SEED=$(SEED) VK_COUNT=$(COUNT) scripts/test $(ONLY)

demo: ## All set-up, then the examples' pipelines in microVMs
	@scripts/demo

bench: ## Ratios against floors measured in the same run
	@scripts/bench

clauses: ## Which clauses of docs/contract.md stand above which tests; ARGS="--missing node"
	@$(XTASK) clauses $(ARGS)

fmt: ## Format every source
	@cargo fmt --all

setup: ## Toolchain, packages, guest kernel, images, tools: what test and demo do first
	@scripts/setup/all.sh

clean: ## What was built; tools and images stay (.tools, and their cache)
	@cargo clean --quiet
	@rm -rf .test-root .vk-lab

help: ## This list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 10
