# Builds, tests and installs the daemon. `make help` lists the targets.
#
# Every target needs cargo and a C compiler for linking; further requirements are installed with rustup, cargo or apt.
# Tests that compare with other programs are skipped without these; `make test` lists the skipped ones at its end.

CARGO ?= cargo
PREFIX ?= /usr/local
CARGO_TARGET_DIR ?= target
BINARY = $(CARGO_TARGET_DIR)/release/poolcounter
SHARE = $(DESTDIR)$(PREFIX)/share
SYSCONFDIR ?= /etc
# Directory of systemd for units that are not from a package.
UNITS = $(DESTDIR)$(PREFIX)/lib/systemd/system

# Target of `make fuzz`, and its duration in seconds.
TARGET ?= pools_stream
TIME ?= 60
# Duration of `make explore`, and of each part of `make soak`, in minutes.
MINUTES ?= 20

# Architectures of `make static`, `make image` and `make release`, as words of Rust and of images.
STATIC ?= x86_64 aarch64
IMAGES = x86_64:amd64 aarch64:arm64
static_program = $(abspath $(CARGO_TARGET_DIR))/$(1)-unknown-linux-musl/dist/poolcounter
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
IMAGE = $(CARGO_TARGET_DIR)/poolcounter-$(VERSION)-oci.tar
# Packages of Debian to build the package, and to test it.
PACKAGING = build-essential debhelper fakeroot
PACKAGE_TESTS = $(PACKAGING) debootstrap lintian systemd-container openssl

DICTIONARY = $(wildcard fuzz/dictionaries/$(TARGET).dict)

.PHONY: all test check lint lint-all docs python test-python test-browser pictures test-mediawiki test-postgres test-upgrade golden bench bench-tables bench-compare fuzz explore farm soak soak-jobs soak-postgres static test-static image test-image deb test-package test-crates test-reproducible release install install-documents clean help

## all: the daemon, optimised
all:
	@[ -e $(BINARY) ] || echo 'The first build takes 1 to 4 minutes on two cores.'
	$(CARGO) build --release
	@echo 'Start it with: $(if $(filter /%,$(BINARY)),,./)$(BINARY)'

# Tests of all crates, and the programs of tests. Most wait for daemons, so these run at the same time, with more threads than two
# cores. `make test FAST=1` has what is worth to run after each edit.
PROGRAMS = $(if $(FAST),protocol commands,postgres protocol sockets commands crash upgrade everyday units documents)
BUILT = $(if $(FAST),$(PROGRAMS:%=--test %),--workspace)
WAITING = commands crash everyday postgres sockets upgrade
# Tests that play very many histories are not for each edit.
MANY = exhaustive short_histories random farm::
test_units = --workspace --lib --bins
test_documents = --workspace --doc

# File in which the tests record their skipped parts.
SKIPPED = $(abspath $(CARGO_TARGET_DIR))/skipped
tell_skipped = sort -u $(SKIPPED) | sed 's/^/not tested here: /'
# Runs each benchmark with a tiny input, alone, because peers give up when others have both cores.
rehearse = $(if $(FAST),:,TESTS_SKIPPED=$(SKIPPED) $(CARGO) test --bench core --bench daemon)
# Makes some targets at the same time after the tests are built, and shows the output of each at its end.
define run_tests
	@mkdir -p $(dir $(SKIPPED)) && : >$(SKIPPED)
	$(CARGO) test $(BUILT) --no-run
	@status=0; $(MAKE) -f $(firstword $(MAKEFILE_LIST)) --no-print-directory --keep-going --output-sync=target --jobs=3 $(1) || status=$$?; $(rehearse) || status=$$?; $(tell_skipped); exit $$status
endef

## test: every test, short enough for each change; make test FAST=1 runs the conversations and the commands, in two to three minutes
test:
	$(call run_tests,$(PROGRAMS:%=run-%))

run-%:
	@unset MAKEFLAGS; TESTS_SKIPPED=$(SKIPPED) $(if $(filter $*,$(WAITING)),RUST_TEST_THREADS=3) \
		$(CARGO) test --no-fail-fast $(or $(test_$*),--test $*)$(if $(FAST), -- $(MANY:%=--skip %))

## check: all that a change must pass: format, lints, tests, documentation, fuzz targets
check:
	$(CARGO) fmt --version >/dev/null 2>&1 || rustup component add rustfmt
	$(CARGO) clippy --version >/dev/null 2>&1 || rustup component add clippy
	$(CARGO) fmt --all --check
	$(call run_tests,$(PROGRAMS:%=run-%) lint)

# Beside the tests, which must not wait for it.
lint: CARGO := nice $(CARGO)
lint:
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy -p poolcounter --no-default-features --features daemon -- -D warnings
	$(CARGO) clippy -p poolcounter-client -- -D warnings
	test $$($(CARGO) tree -p poolcounter-client -e normal --prefix none --no-dedupe | sort -u | wc -l) -le $(CLIENT_CRATES)
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps
	if [ -f fuzz/Cargo.toml ]; then CUSTOM_LIBFUZZER_PATH=none/none $(CARGO) check --manifest-path fuzz/Cargo.toml --target-dir $(CARGO_TARGET_DIR); fi

## lint-all: lints of each combination of features, and of the client on other systems
lint-all: lint
	$(CARGO) clippy --workspace -- -D warnings
	for target in $(ELSEWHERE); do \
		if rustup target add $$target >/dev/null 2>&1; then $(CARGO) check -p poolcounter-client --target $$target || exit; \
		else echo "not checked here: the client library for $$target"; fi; \
	done

# Platforms besides Linux on which the client library compiles.
ELSEWHERE = x86_64-unknown-freebsd aarch64-apple-darwin
# Limit of the crates of the client library, including itself.
CLIENT_CRATES = 12

## docs: the parts of the manual and of the settings' template that are made of the tables of options
docs:
	WRITE_DOCS=1 $(CARGO) test --test commands docs::

## python: the client for Python as sdist and wheel, in $(CARGO_TARGET_DIR)/python
python:
	PYTHONDONTWRITEBYTECODE=1 python3 contrib/python/backend.py $(CARGO_TARGET_DIR)/python

## test-python: the tests of the client for Python, with each of these: make test-python PYTHONS="python3.9 python3.13"
PYTHONS = python3 $(wildcard $(HOME)/.pyenv/versions/3.9.*/bin/python3 $(HOME)/.pyenv/versions/3.1?.*/bin/python3)
test-python:
	$(CARGO) build
	cd contrib/python && for python in $(PYTHONS); do echo "$$python"; PYTHONDONTWRITEBYTECODE=1 \
		POOLCOUNTER_PROGRAM=$(abspath $(CARGO_TARGET_DIR))/debug/poolcounter $$python -m unittest discover -t . -s tests || exit; done

# Checkers of the status page, installed outside of the repository.
NPM = $(abspath $(CARGO_TARGET_DIR))/tmp/npm
PAGE_CHECKS = axe-core@4.14.1 html-validate@10.17.0 puppeteer-core@24.43.1
## test-browser: the status page in a browser, which it installs on Debian; leaves pictures in $(CARGO_TARGET_DIR)/tmp/pictures
test-browser:
	$(call browse,)

# Runs the tests of the page whose names contain one of these words, or all.
define browse
	command -v chromium chromium-browser >/dev/null || { $(call apt_install,chromium); }
	command -v npm >/dev/null || { $(call apt_install,npm); }
	npm install --silent --no-audit --no-fund --no-save --prefix $(NPM) $(PAGE_CHECKS)
	NODE_PATH=$(NPM)/node_modules $(CARGO) test --test browser -- --ignored --nocapture --test-threads=1 $(1)
endef

## pictures: the pictures of README and docs, taken anew in a browser
pictures:
	$(call browse,stampede farm)
	$(call with_debian,pngquant)
	for picture in page farm; do \
		pngquant --force --strip --output src/http/$$picture.png 64 $(CARGO_TARGET_DIR)/tmp/pictures/$$picture.png || exit; \
	done

## test-postgres: jobs in PostgreSQL, whose server fails in every way; installs Debian's package
test-postgres:
	$(call with_debian,postgresql pgbouncer)
	$(CARGO) test --test postgres -- --include-ignored --nocapture --test-threads=4
	$(CARGO) test --test crash jobs_store::suite -- --nocapture
	$(CARGO) test --test crash jobs_owners:: -- --nocapture

# For how many seconds `make soak-postgres` runs.
SECONDS ?= 7200

## soak-postgres: histories of jobs in PostgreSQL under random faults: make soak-postgres SECONDS=7200 [SOAK_SEED=1]
soak-postgres:
	$(call with_debian,postgresql)
	SOAK_SECONDS=$(SECONDS) $(CARGO) test --test postgres soak:: -- --ignored --nocapture

MEDIAWIKI = mediawiki php-cli php-sqlite3 phpunit php-hamcrest
# A newer one of Debian's archive, and the source of the installed one, which has tests. They are unpacked there and not installed.
NEWER_MEDIAWIKI = $(abspath $(CARGO_TARGET_DIR))/tmp/mediawiki
MEDIAWIKI_SOURCE = $(abspath $(CARGO_TARGET_DIR))/tmp/mediawiki-source
## test-mediawiki: MediaWiki with its job queue in the daemon, beside its own queue; installs Debian's package, and fetches a newer release
test-mediawiki:
	$(call with_debian,$(MEDIAWIKI))
	$(CARGO) test --test mediawiki -- --ignored --nocapture --test-threads=1
	tests/mediawiki/fetch.sh $(NEWER_MEDIAWIKI)
	tests/mediawiki/fetch.sh $(MEDIAWIKI_SOURCE) $$(. /etc/os-release && echo $$VERSION_CODENAME)
	MEDIAWIKI=$(MEDIAWIKI_SOURCE)/mediawiki $(CARGO) test --test mediawiki mediawikis_own -- --ignored --nocapture
	MEDIAWIKI=$(NEWER_MEDIAWIKI)/mediawiki $(CARGO) test --test mediawiki mediawikis_own -- --ignored --nocapture
	MEDIAWIKI=$(NEWER_MEDIAWIKI)/mediawiki $(CARGO) test --test mediawiki mediawiki_has_its_jobs_here -- --ignored --nocapture

# Commit from which `make test-upgrade` upgrades. A shallow clone lacks it: git fetch --unshallow.
RELEASE = HEAD~1
RELEASED = $(CARGO_TARGET_DIR)/released

## test-upgrade: the upgrade from the program of the commit before to this one, with 10,000 connections: make test-upgrade RELEASE=COMMIT
test-upgrade:
	rm -rf $(RELEASED)/src && mkdir -p $(RELEASED)/src
	# Cargo builds files anew that are younger than the last build.
	git archive $(RELEASE) | tar -xm -C $(RELEASED)/src
	$(CARGO) build --locked --manifest-path $(RELEASED)/src/Cargo.toml --target-dir $(RELEASED)
	RELEASED_PROGRAM=$(abspath $(RELEASED))/debug/poolcounter $(CARGO) test --test upgrade upgrade_release:: -- --ignored --nocapture

## golden: writes what this version hands over to tests/handovers, which later versions are to read
golden:
	$(CARGO) test --test upgrade golden:: -- --ignored --nocapture

## bench: the benchmarks, with the values of all rounds in target/bench/*.json
bench:
	$(CARGO) bench

## bench-tables: the tables of benches/README.md, from a run: make bench-tables RUN=target/bench/FILE.json
bench-tables:
	$(CARGO) bench --bench daemon -- --tables $(RUN) benches/README.md

## bench-compare: the differences between two runs: make bench-compare OLD=FILE.json NEW=FILE.json
bench-compare:
	$(CARGO) bench --bench daemon -- --compare $(OLD) $(NEW)

## fuzz: one fuzz target for a while: make fuzz TARGET=pools_stream TIME=60
fuzz:
	$(CARGO) fuzz --version >/dev/null 2>&1 || $(CARGO) install cargo-fuzz --locked
	RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run $(TARGET) -- -max_total_time=$(TIME) $(DICTIONARY:%=-dict=$(CURDIR)/%)

## explore: new seeds of every random test, and longer histories of exhaustive ones; failures are appended to tests/seeds.txt: make explore MINUTES=20
explore:
	EXPLORE_SECONDS=$$(($(MINUTES) * 60)) $(CARGO) test --release --no-fail-fast --test protocol --test crash --test sockets --test commands \
		-- random exhaustive --nocapture --test-threads=1

## farm: what the product is for: a model of a farm with and without locks, as a table of benches/README.md
farm:
	$(CARGO) test --test protocol farm:: -- --nocapture

## soak: the daemon under load for a long time, then every service in a storm for as long: make soak MINUTES=20
soak:
	SOAK_MINUTES=$(MINUTES) $(CARGO) test --release --test sockets soak:: -- --ignored --nocapture
	STORM_SECONDS=$$(($(MINUTES) * 60)) $(CARGO) test --release --test sockets storm:: -- --nocapture

# Number of times that `make soak-jobs` kills the daemon.
ROUNDS ?= 200

## soak-jobs: the daemon killed under load, over and over, and jobs on disks that fail: make soak-jobs ROUNDS=200
soak-jobs:
	SIM_SEED=1 SIM_STEPS=$(ROUNDS) $(CARGO) test --release --test crash random_kills -- --nocapture
	SIM_SEED=1 SIM_SEEDS=$(ROUNDS) $(CARGO) test --release --test crash random_failures -- --nocapture

## static: the daemon as one file that needs no libraries, for each architecture: make static [STATIC=aarch64]
static:
	$(call with_debian,$(STATIC_PACKAGES))
	for arch in $(STATIC); do contrib/static.sh $$arch || exit; done

STATIC_PACKAGES = gcc libc6-dev $(foreach arch,$(filter-out $(shell uname -m),$(STATIC)),gcc-$(subst _,-,$(arch))-linux-gnu)

## test-static: the static program for aarch64, under qemu-user: conversations of all services, jobs in a file, upgrades
test-static:
	$(MAKE) static STATIC=aarch64
	$(call with_debian,qemu-user-static binfmt-support)
	# The package's script does that only where services are started.
	[ "$$(id -u)" != 0 ] || update-binfmts --enable qemu-aarch64
	@mkdir -p $(dir $(SKIPPED)) && : >$(SKIPPED)
	if $(call static_program,aarch64) --version; then \
		export TESTED_PROGRAM=$(call static_program,aarch64); \
		$(CARGO) test --test protocol -- $(STATIC_CONVERSATIONS) && $(CARGO) test --test upgrade -- $(STATIC_UPGRADES); \
	else echo "not tested here: the static program for aarch64, which this kernel does not run with qemu-user"; fi

# Without those that need more memory, or are more exact in time, than the emulator is.
STATIC_CONVERSATIONS = $(addprefix conversations::,of_the_documents_over_tcp counters jobs members over_a_local_socket)
STATIC_UPGRADES = $(addprefix upgrade::,a_local_socket a_rehearsed the_process_keeps unsent_output) members_upgrade:: reload::settings_of_tubes

## image: an OCI archive with the static programs, without docker: podman load -i or skopeo copy oci-archive:
image: static
	python3 contrib/image/archive.py $(IMAGE) \
		$(foreach image,$(IMAGES),$(if $(filter $(word 1,$(subst :, ,$(image))),$(STATIC)),$(word 2,$(subst :, ,$(image))):$(call static_program,$(word 1,$(subst :, ,$(image))))))

# Checkers of files for containers, and of the bill of materials, installed outside of the repository.
PYTHON = $(abspath $(CARGO_TARGET_DIR))/tmp/python
CHECKERS = check-jsonschema==0.39.0 kubernetes-validate==1.37.0 cyclonedx-python-lib[json-validation]==11.12.0
## test-image: the OCI archive, unpacked and run, and the files for compose and Kubernetes with their linters; needs root
test-image: image checkers
	python3 tests/image.py $(IMAGE)
	$(PYTHON)/bin/check-jsonschema --builtin-schema vendor.compose-spec contrib/compose.yaml
	$(PYTHON)/bin/kubernetes-validate --strict contrib/kubernetes.yaml

.PHONY: checkers
checkers:
	python3 -m venv $(PYTHON) && $(PYTHON)/bin/pip install --quiet --disable-pip-version-check $(CHECKERS)

## deb: the Debian package, in the directory above this one
deb:
	$(call with_debian,$(PACKAGING))
	dpkg-buildpackage -us -uc -b

## test-package: the Debian package from its installation to its purge, in scratch systems of bookworm and trixie; needs root
test-package:
	$(call with_debian,$(PACKAGE_TESTS))
	tests/package.sh $(CARGO_TARGET_DIR)/package

## test-crates: each crate as it would be published, in order, and the oldest versions of what it depends on
test-crates:
	$(CARGO) publish --workspace --dry-run --locked --allow-dirty --target-dir $(CARGO_TARGET_DIR)/crates
	rm -rf $(CARGO_TARGET_DIR)/minimal && mkdir -p $(CARGO_TARGET_DIR)/minimal
	$(call copy_to,$(CARGO_TARGET_DIR)/minimal)
	cd $(CARGO_TARGET_DIR)/minimal && RUSTC_BOOTSTRAP=1 $(CARGO) update -Z direct-minimal-versions && \
		$(CARGO) check --workspace --all-features --target-dir $(abspath $(CARGO_TARGET_DIR))/crates

# Copies what is in the repository, with changes that are not committed.
copy_to = git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -x -C $(1)

## test-reproducible: two builds in two folders give the same bytes: make test-reproducible [STATIC=x86_64]
test-reproducible: STATIC = x86_64
test-reproducible:
	for copy in one two/of; do \
		rm -rf $(CARGO_TARGET_DIR)/same/$$copy && mkdir -p $(CARGO_TARGET_DIR)/same/$$copy || exit; \
		$(call copy_to,$(CARGO_TARGET_DIR)/same/$$copy) || exit; \
		$(MAKE) -C $(CARGO_TARGET_DIR)/same/$$copy image CARGO_TARGET_DIR=target STATIC="$(STATIC)" || exit; \
	done
	cd $(CARGO_TARGET_DIR)/same && sha256sum one/target/*-oci.tar two/of/target/*-oci.tar
	cmp $(CARGO_TARGET_DIR)/same/one/target/*-oci.tar $(CARGO_TARGET_DIR)/same/two/of/target/*-oci.tar

# A release while it is made.
PARTS = $(abspath $(CARGO_TARGET_DIR))/release-parts
## release: static programs, the image, packages, the source, a bill of materials, checksums and a page about them, of a commit, in dist/
release: export SOURCE_DATE_EPOCH = $(shell git log -1 --format=%ct)
release:
	@[ -z "$$(git status --porcelain)" ] || { echo "a release is that of a commit, and there are other changes: git status" >&2; exit 1; }
	$(call with_debian,$(PACKAGING))
	$(MAKE) lint-all
	rm -rf $(PARTS) && mkdir -p $(PARTS)/dist $(PARTS)/poolcounter
	$(MAKE) image checkers
	for arch in $(STATIC); do cp $(call static_program,$$arch) $(PARTS)/dist/poolcounter-$(VERSION)-$$arch-linux || exit; done
	cp $(IMAGE) $(PARTS)/dist
	PYTHONDONTWRITEBYTECODE=1 python3 contrib/python/backend.py $(PARTS)/dist
	$(call copy_to,$(PARTS)/poolcounter)
	cd $(PARTS)/poolcounter && CARGO_TARGET_DIR=$(abspath $(CARGO_TARGET_DIR)) dpkg-buildpackage -us -uc -b
	mv $(PARTS)/*.deb $(PARTS)/dist
	python3 contrib/sbom.py >$(PARTS)/dist/poolcounter-$(VERSION).cdx.json
	$(PYTHON)/bin/python tests/sbom.py $(PARTS)/dist/poolcounter-$(VERSION).cdx.json
	git archive --prefix=poolcounter-$(VERSION)/ -o $(PARTS)/dist/poolcounter-$(VERSION)-source.tar.gz HEAD
	sed "s/VERSION/$(VERSION)/g; s/COMPILER/$$(rustc --version)/; s/SECONDS/$$SOURCE_DATE_EPOCH/" contrib/dist.md >$(PARTS)/dist/README.md
	cp contrib/kubernetes.yaml $(PARTS)/dist
	cd $(PARTS)/dist && sha256sum -- * >SHA256SUMS
	rm -rf dist && mv $(PARTS)/dist dist && rm -rf $(PARTS)

# Installs missing packages; users other than root need sudo.
with_debian = dpkg -s $(1) >/dev/null 2>&1 || { $(call apt_install,$(1)); }
define apt_install
if [ "$$(id -u)" = 0 ]; then sudo=; \
elif command -v sudo >/dev/null; then sudo=sudo; \
else echo "this needs packages that only root can install: apt-get install --no-install-recommends $(1)" >&2; exit 1; fi; \
$$sudo apt-get update && $$sudo apt-get install -y --no-install-recommends $(1)
endef

## install: the program, its manual pages, documents, completions and units, under DESTDIR and PREFIX (/usr/local), and its settings in SYSCONFDIR (/etc), unless they are there
install: $(BINARY)
	install -d $(DESTDIR)$(PREFIX)/sbin $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(BINARY) $(DESTDIR)$(PREFIX)/sbin/poolcounter
	ln -sf poolcounter $(DESTDIR)$(PREFIX)/sbin/poolcounterd
	ln -sf ../sbin/poolcounter $(DESTDIR)$(PREFIX)/bin/poolcounter
	install -d $(SHARE)/man/man1 $(SHARE)/man/man5 $(SHARE)/man/man8
	install -m 644 poolcounter.1 man/*.1 $(SHARE)/man/man1
	install -m 644 man/*.5 $(SHARE)/man/man5
	install -m 644 poolcounter.8 $(SHARE)/man/man8
	install -d $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions $(SHARE)/fish/vendor_completions.d
	$(BINARY) completions bash > $(SHARE)/bash-completion/completions/poolcounter
	$(BINARY) completions zsh > $(SHARE)/zsh/site-functions/_poolcounter
	$(BINARY) completions fish > $(SHARE)/fish/vendor_completions.d/poolcounter.fish
	$(MAKE) install-documents DOCUMENTS_DIRECTORY=$(SHARE)/doc/poolcounter
	install -d $(SHARE)/poolcounter $(DESTDIR)$(SYSCONFDIR)
	install -m 644 debian/poolcounter.toml $(SHARE)/poolcounter/poolcounter.toml
	[ -e $(DESTDIR)$(SYSCONFDIR)/poolcounter.toml ] || \
		install -m 644 debian/poolcounter.toml $(DESTDIR)$(SYSCONFDIR)/poolcounter.toml
	install -d $(UNITS)
	$(call unit,debian/poolcounter.service,poolcounter.service)
	$(call unit,debian/poolcounter.socket,poolcounter.socket)
	$(call unit,debian/poolcounter.poolcounter-tls.service,poolcounter-tls.service)

# Documents, and the files that they link to, at the same relative paths. The package has them, too.
DOCUMENTS = $(wildcard *.md docs/*.md docs/protocols/*.md benches/*.md contrib/*.yaml contrib/*.json src/http/*.png) \
	src/README.md debian/poolcounter.toml contrib/Dockerfile \
	$(shell find contrib/mediawiki contrib/python -type f -size +0 ! -path '*/tests/*' ! -name '*.pyc')
install-documents:
	for file in $(DOCUMENTS); do install -D -m 644 $$file $(DOCUMENTS_DIRECTORY)/$$file || exit; done

# Installs a unit of the package, with the paths of this installation.
unit = sed 's|/usr/bin/poolcounterd\{0,1\} |$(PREFIX)/sbin/poolcounter |; s|/etc/poolcounter\.toml|$(SYSCONFDIR)/poolcounter.toml|' $(1) > $(UNITS)/$(2)

# Builds only if there is no program yet, so that root can install the build of another user without cargo.
$(BINARY):
	$(CARGO) build --release

## clean: removes what was built
clean:
	$(CARGO) clean
	if [ -f fuzz/Cargo.toml ]; then cd fuzz && $(CARGO) clean; fi

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)
