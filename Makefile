# The two commands a newcomer needs are `make demo` and `make test`; `make help` lists the others.

CARGO ?= cargo
PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
# The library for C and forerun.pc; distributions have /usr/lib64 or /usr/lib/x86_64-linux-gnu.
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
DATADIR ?= $(PREFIX)/share
DOCDIR ?= $(DATADIR)/doc/forerun
UNITDIR ?= $(PREFIX)/lib/systemd/system
TMPFILESDIR ?= $(PREFIX)/lib/tmpfiles.d
# mount(8) looks for its helpers here and nowhere else.
HELPERDIR ?= /sbin
# Names of other programs that forerun answers to (docs/compat.md).
NAMES := squashfuse squashfuse_ll unsquashfs mksquashfs sqfstar \
  mkfs.erofs fsck.erofs dump.erofs erofsfuse mkcomposefs composefs-info \
  mkfs.exfat fsck.exfat exfatlabel
# Helpers of mount(8) among them, which lie in $(HELPERDIR).
HELPERS := mount.composefs mount.exfat mount.exfat-fuse
TARGET := $(or $(CARGO_TARGET_DIR),target)
DIST := $(TARGET)/dist
FORERUN := $(DIST)/stripped/forerun
# Writes the man pages and completions. A cross build names a forerun that this machine can run, with the same features.
GENERATOR ?= $(FORERUN)
ARCH ?= $(shell uname -m)
# The static program, for any Linux of this machine's architecture.
MUSL := $(ARCH)-unknown-linux-musl
STATIC := $(TARGET)/$(MUSL)/static/forerun
# The same for local images only.
LITE := $(TARGET)/$(MUSL)/lite/forerun
# The runtime of AppImages, and the most that it may have: each AppImage has a copy.
RUNTIME := $(TARGET)/$(MUSL)/runtime/appimage/forerun-runtime
RUNTIME_MAX := 1500000
# No program has in it where it was built: each place gets a name that is the same on all machines, in Rust and in the C libraries
# of codecs. `make reproducible` compares builds in two places.
CARGO_DIR := $(or $(CARGO_HOME),$(HOME)/.cargo)
PLACES := $(CURDIR)=/usr/src/forerun $(abspath $(TARGET))=/usr/src/forerun/target $(CARGO_DIR)=/usr/src/cargo
REMAPPED := $(strip $(RUSTFLAGS) $(PLACES:%=--remap-path-prefix=%))
C_FLAGS = CFLAGS='$(strip $(CFLAGS) $(1) $(PLACES:%=-ffile-prefix-map=%))'
PLACELESS = $(C_FLAGS) RUSTFLAGS='$(REMAPPED)'
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
# The program looks for the runtime there, wherever LIBDIR is.
RUNTIMEDIR := $(dir $(BINDIR))lib/forerun

# Libraries of the system in place of those that crates bring: SYSTEM_LIBS='zstd lzma libdeflate'. cargo then runs no build script for them. Each
# has its package in pkg-config, the oldest version that does all that ours does, and its name for the linker.
SYSTEM_LIBS ?=
SYSTEM_zstd := libzstd 1.5.0 zstd
SYSTEM_lzma := liblzma 5.8.0 lzma
SYSTEM_libdeflate := libdeflate 1.14 deflate
HOST = $(shell rustc -vV | sed -n 's/^host: //p')
FOUND = $(shell pkg-config --exists '$(word 1,$(1)) >= $(word 2,$(1))' && echo yes)
LINKED = $(if $(call FOUND,$(SYSTEM_$(1))),--config 'target.$(HOST).$(1).rustc-link-lib=["$(word 3,$(SYSTEM_$(1)))"]',\
  $(error SYSTEM_LIBS: $(1) needs $(word 1,$(SYSTEM_$(1))) $(word 2,$(SYSTEM_$(1))) or newer with its pkg-config file))
LINK_SYSTEM = $(foreach lib,$(SYSTEM_LIBS),$(call LINKED,$(lib)))
DIST_BUILD = $(PLACELESS) $(CARGO) build --profile dist --locked $(LINK_SYSTEM)

.PHONY: check-aarch64 help demo docs test test-guest bench fuzz packages python release runtime static lite deb rpm tarball sbom reproducible publish-check check install install-c install-header uninstall clean

help:
	@echo 'make demo        build, then measure five systems: the legacy way against ours'
	@echo 'make test        all that CI checks; asks before it installs packages that the tests use'
	@echo 'make check       tests that need no network, root or FUSE, for build chroots'
	@echo 'make docs        the documents as a site with search, in target/site; needs python3 and its venv module'
	@echo 'make test-guest  the Linux romfs and exfat drivers, in a virtual machine, on our images'
	@echo 'make bench       as root, an hour: measure all rows of docs/benchmarks.md and write it'
	@echo 'make fuzz        one minute for each fuzz target (cargo-fuzz), then a table of findings'
	@echo 'make packages    install the Debian packages that the tests use; FORERUN_INSTALL=yes: do not ask'
	@echo 'make python      the wheel of the Python package, in $(TARGET)/wheels'
	@echo 'make release     the program as it is installed, in $(DIST)/stripped'
	@echo 'make runtime     the runtime of AppImages, in $(RUNTIME)'
	@echo 'make static      a program without libraries, in $(STATIC)'
	@echo 'make lite        the same without the network, in $(LITE)-lite'
	@echo 'make deb         packages for Debian, make rpm for Fedora and its relatives, make tarball for others, in $(TARGET)/packages;'
	@echo '                 FORERUN=$(STATIC): with that program'
	@echo 'make sbom        what the program consists of, as CycloneDX, and the licences of its libraries, in $(SBOM)'
	@echo 'make check-aarch64  the crates build for aarch64, and parsers and codecs run in an emulator'
	@echo 'make reproducible   two builds in different places are the same: WHAT="$(WHAT)"'
	@echo 'make publish-check  the public crates can be published'
	@echo 'make install     program, man pages, completions, mount helper, units; PREFIX=$(PREFIX), DESTDIR, LIBDIR and others:'
	@echo '                 docs/install.md'
	@echo '                 DEBUG=1: debug information too, in a file of its own'
	@echo '                 COMPAT=1: links with the names of other programs, see docs/compat.md'
	@echo 'make install-c   the library for C: shared, static, header, pkg-config file'

# Without link-time optimisation: a newcomer waits for two thirds of the time. The snapshotter, which brings gRPC, is
# not shown.
demo:
	$(CARGO) build --release --locked --package forerun-cli --bin forerun --no-default-features --features measure
	$(TARGET)/release/forerun demo

# Not `cargo xtask ci`, which does the same: with the features of the whole workspace, what xtask is built
# with serves the tests as well. In CI nothing is built twice, and what a second build would need takes gigabytes; on two cores, which
# are busy with several crates at once anyway, fewer units than cargo's 16 take a tenth less time.
ifneq ($(filter-out false,$(CI)),)
test: export CARGO_INCREMENTAL = 0
test: export CARGO_PROFILE_DEV_CODEGEN_UNITS = 4
endif
test:
	$(CARGO) build --quiet --locked --workspace --all-features --bin xtask
	$(TARGET)/debug/xtask ci

docs:
	tools/site.py

# Not tested: what needs a network, root, FUSE, or programs of the machine. A crate whose tests do not need them comes in by itself. The skipped
# test asks the kernel what is in its page cache, which overlayfs does not tell.
NOT_IN_CHROOTS := forerun-cli forerun-fuse forerun-kernel forerun-python forerun-remote forerun-runtime forerun-sandbox forerun-snapshotter \
  forerun-testkit-servers xtask
check:
	$(CARGO) test --locked --workspace --all-features --tests $(addprefix --exclude ,$(NOT_IN_CHROOTS)) -- \
	  --skip file::tests::what_is_in_memory_is_taken_from_there

test-guest:
	$(CARGO) xtask guest-kernel
	$(CARGO) test --locked --package forerun-testkit --test it guest_

# What users install, and not what a source tree is tried with.
bench:
	$(PLACELESS) $(CARGO) build --profile dist --locked --package forerun-cli --bin forerun
	$(CARGO) run --release --locked --manifest-path bench/Cargo.toml -- run --program $(DIST)/forerun
	$(CARGO) run --release --locked --manifest-path bench/Cargo.toml -- page

fuzz:
	$(CARGO) xtask fuzz

packages:
	$(CARGO) xtask packages

# The packages of Python are those of the tests, maturin among them. A wheel that is larger than users expect fails.
python: packages
	rm -f $(TARGET)/wheels/*
	packaging/licences.py forerun-python >python/forerun/third-party-licenses.txt
	cd python && $(PLACELESS) $(CURDIR)/target/tools/python/bin/maturin build --profile dist --locked --strip $(LINK_SYSTEM) \
	  --out $(abspath $(TARGET))/wheels
	cd python && $(CURDIR)/target/tools/python/bin/maturin sdist --out $(abspath $(TARGET))/wheels
	@for wheel in $(TARGET)/wheels/*.whl; do \
	  size=$$(stat -c %s $$wheel); echo "$$wheel: $$size bytes"; \
	  [ $$size -le 8388608 ] || { echo 'larger than 8 MiB'; exit 1; }; \
	done

# Not made again by `sudo make install`, where there may be no cargo.
$(FORERUN):
	$(MAKE) release

# Debuggers and backtraces find the debug information beside the program, in .debug.
release:
	$(DIST_BUILD) --package forerun-cli --bin forerun
	install -d $(DIST)/stripped/.debug
	objcopy --only-keep-debug $(DIST)/forerun $(DIST)/stripped/.debug/forerun.debug
	objcopy --strip-all --add-gnu-debuglink=$(DIST)/stripped/.debug/forerun.debug \
	  $(DIST)/forerun $(FORERUN)

# Debian: rustup target add, and the package musl-tools for the C libraries of codecs. Relocations are packed, which saves a
# megabyte. No panic unwinds through the C libraries, so they have no tables for that.
TO_MUSL = CC_$(subst -,_,$(MUSL))=musl-gcc $(call C_FLAGS,-fno-asynchronous-unwind-tables) RUSTFLAGS='-C link-arg=-Wl,-z,pack-relative-relocs $(1) $(REMAPPED)' \
  $(CARGO) build --locked --target $(MUSL)
BUILD_STATIC = $(TO_MUSL) --package forerun-cli --bin forerun --no-default-features
# A panic ends forerun-lite and the runtime, so nothing unwinds there. Flags of the compiler do not leave out the tables of the standard library.
NO_UNWINDING = -C link-arg=-Wl,-T,$(CURDIR)/packaging/no-unwinding.ld

# The snapshotter, which brings gRPC, is left out.
static:
	$(call BUILD_STATIC) --profile static --features measure

lite:
	$(call BUILD_STATIC,$(NO_UNWINDING)) --profile lite
	ln -f $(LITE) $(LITE)-lite
	@echo "$(LITE)-lite: $$(stat -c %s $(LITE)-lite) bytes"

# Debian: gcc-aarch64-linux-gnu, libc6-dev-arm64-cross, qemu-user-static; rustup target add. The skipped tests ask the kernel about mounts and its
# page cache, and get other answers in the emulator.
AARCH64 := aarch64-unknown-linux-gnu
ON_AARCH64 = CC_$(subst -,_,$(AARCH64))=aarch64-linux-gnu-gcc CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
  CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER='qemu-aarch64-static -L /usr/aarch64-linux-gnu' $(CARGO)
check-aarch64:
	$(ON_AARCH64) check --locked --target $(AARCH64) --package forerun-cli --package forerun-c --package forerun-runtime
	$(ON_AARCH64) test --locked --target $(AARCH64) --lib --no-fail-fast --package forerun-codec --package forerun-cramfs --package forerun-io \
	  --package forerun-romfs --package forerun-squashfs --package forerun-vfs -- \
	  --skip file::tests::what_is_in_memory_is_taken_from_there --skip mountpoint::tests

# Packs each public crate, and builds it from its package.
publish-check:
	$(CARGO) publish --workspace --dry-run --locked

# Tools for AppImages write updates, signatures and digests into sections of these lengths, which are empty here.
SECTIONS := .upd_info=1024 .sha256_sig=1024 .sig_key=8192 .digest_md5=16
runtime:
	$(call TO_MUSL,$(NO_UNWINDING)) --profile runtime --package forerun-runtime
	install -d $(dir $(RUNTIME))
	for section in $(SECTIONS); do head -c $${section#*=} /dev/zero >$(dir $(RUNTIME))$${section%=*}; done
	objcopy $(foreach section,$(SECTIONS),--add-section $(firstword $(subst =, ,$(section)))=$(dir $(RUNTIME))$(firstword $(subst =, ,$(section)))) \
	  $(dir $(RUNTIME))../forerun-runtime $(RUNTIME)
	@size=$$(stat -c %s $(RUNTIME)); echo "$(RUNTIME): $$size bytes"; \
	[ $$size -le $(RUNTIME_MAX) ] || { echo 'larger than $(RUNTIME_MAX) bytes'; exit 1; }

# Builds the last commit twice, in directories, with homes of cargo and under umasks that differ, and compares. WHAT names targets:
# release, static, lite, runtime, deb, rpm and tarball.
WHAT ?= runtime deb
reproducible:
	packaging/reproducible.sh $(WHAT)

# What the program and the runtime consist of, for programs that look for vulnerable libraries, and the licences of all of it. The features are
# those that the program has.
SBOM ?= $(TARGET)/packages
FEATURES_OF = $$(if $(GENERATOR) help snapshotter >/dev/null 2>&1; then :; else echo --no-default-features; \
  if $(GENERATOR) help bench >/dev/null 2>&1; then echo --features measure; fi; fi; \
  readelf -d $(FORERUN) | grep -q NEEDED || echo --target $(MUSL))
sbom: $(FORERUN)
	install -d $(SBOM)
	packaging/sbom.py forerun-cli $(FEATURES_OF) >$(SBOM)/forerun.cdx.json
	packaging/licences.py forerun-cli $(FEATURES_OF) >$(SBOM)/forerun.licenses.txt
	if [ -f $(RUNTIME) ]; then \
	  packaging/sbom.py forerun-runtime --target $(MUSL) >$(SBOM)/forerun-runtime.cdx.json; \
	  packaging/licences.py forerun-runtime --target $(MUSL) >$(SBOM)/forerun-runtime.licenses.txt; \
	fi

PACKAGING = ARCH=$(ARCH) GENERATOR=$(GENERATOR)
deb: $(FORERUN)
	$(PACKAGING) packaging/deb.sh $(FORERUN) $(TARGET)/packages

# Debian: the package rpm.
rpm: $(FORERUN)
	$(PACKAGING) packaging/rpm.sh $(FORERUN) $(TARGET)/packages

# Its files go below /usr/local, which the units name.
TREE := $(TARGET)/packages/tree
tarball: $(FORERUN)
	rm -rf $(TREE) $(TREE).sbom
	$(MAKE) --silent sbom SBOM=$(TREE).sbom
	$(MAKE) --silent install DESTDIR=$(TREE) PREFIX=/usr/local HELPERDIR=/sbin COMPAT=1 SBOM=$(TREE).sbom
	tar --sort=name --mode=u=rwX,go=rX --owner=0 --group=0 --numeric-owner --mtime=@$$(packaging/date.sh) \
	  -C $(TREE)/usr/local -czf $(TARGET)/packages/forerun-$(VERSION)-$(ARCH).tar.gz .
	rm -rf $(TREE) $(TREE).sbom

# Copies a file that names the program as /usr/local/bin/forerun.
PLACED = install -D -m 644 $(1) $(DESTDIR)$(2) && sed -i 's,/usr/local/bin/,$(BINDIR)/,' $(DESTDIR)$(2)
install: $(FORERUN)
	install -D -m 755 $(FORERUN) $(DESTDIR)$(BINDIR)/forerun
	if [ -n '$(DEBUG)' ]; then \
	  install -D -m 644 $(DIST)/stripped/.debug/forerun.debug \
	    $(DESTDIR)$(BINDIR)/.debug/forerun.debug; \
	fi
	if [ -f $(RUNTIME) ]; then \
	  install -D -m 755 $(RUNTIME) $(DESTDIR)$(RUNTIMEDIR)/runtime-$(ARCH); \
	fi
	install -d $(DESTDIR)$(DATADIR)/man/man1
	$(GENERATOR) man $(DESTDIR)$(DATADIR)/man/man1
	install -d $(DESTDIR)$(DATADIR)/bash-completion/completions \
	  $(DESTDIR)$(DATADIR)/zsh/site-functions $(DESTDIR)$(DATADIR)/fish/vendor_completions.d
	$(GENERATOR) completions bash > $(DESTDIR)$(DATADIR)/bash-completion/completions/forerun
	$(GENERATOR) completions zsh > $(DESTDIR)$(DATADIR)/zsh/site-functions/_forerun
	$(GENERATOR) completions fish > $(DESTDIR)$(DATADIR)/fish/vendor_completions.d/forerun.fish
	install -d $(DESTDIR)$(DOCDIR)/examples
	install -m 644 LICENSE-APACHE LICENSE-MIT $(wildcard $(SBOM)/*.cdx.json $(SBOM)/*.licenses.txt) $(DESTDIR)$(DOCDIR)
	install -m 644 packaging/fstab.example $(DESTDIR)$(DOCDIR)/examples/fstab
	$(call PLACED,packaging/forerun.apparmor,$(DOCDIR)/examples/apparmor)
	$(call PLACED,packaging/forerun@.service,$(UNITDIR)/forerun@.service)
	if $(GENERATOR) help snapshotter >/dev/null 2>&1; then \
	  $(call PLACED,packaging/forerun-snapshotter.service,$(UNITDIR)/forerun-snapshotter.service); \
	fi
	install -D -m 644 packaging/forerun.tmpfiles $(DESTDIR)$(TMPFILESDIR)/forerun.conf
	@if install -d $(DESTDIR)$(HELPERDIR) && \
	  ln -sf $(BINDIR)/forerun $(DESTDIR)$(HELPERDIR)/mount.fuse.forerun && \
	  ln -sf $(BINDIR)/forerun $(DESTDIR)$(HELPERDIR)/umount.fuse.forerun; then \
	  echo 'fstab can name the type fuse.forerun'; \
	else \
	  echo 'no mount.fuse.forerun in $(HELPERDIR), which takes root: fstab cannot name forerun'; \
	fi
	@if [ -n '$(COMPAT)' ]; then \
	  for name in $(NAMES); do \
	    link=$(DESTDIR)$(BINDIR)/$$name; \
	    if [ -e $$link -o -L $$link ] && [ "$$(readlink $$link)" != forerun ]; then \
	      echo "$$link is another program, and stays"; \
	    else \
	      ln -sf forerun $$link; \
	    fi; \
	  done; \
	  for name in $(HELPERS); do \
	    [ -w $(DESTDIR)$(HELPERDIR) ] || continue; \
	    link=$(DESTDIR)$(HELPERDIR)/$$name; \
	    if [ -e $$link -o -L $$link ] && [ "$$(readlink $$link)" != $(BINDIR)/forerun ]; then \
	      echo "$$link is another program, and stays"; \
	    else \
	      ln -sf $(BINDIR)/forerun $$link; \
	    fi; \
	  done; \
	fi

uninstall:
	rm -f $(DESTDIR)$(BINDIR)/forerun $(DESTDIR)$(BINDIR)/.debug/forerun.debug \
	  $(DESTDIR)$(RUNTIMEDIR)/runtime-* \
	  $(DESTDIR)$(DATADIR)/man/man1/forerun.1 \
	  $(DESTDIR)$(DATADIR)/man/man1/forerun-*.1 \
	  $(DESTDIR)$(DATADIR)/man/man8/mount.fuse.forerun.8 \
	  $(DESTDIR)$(DATADIR)/bash-completion/completions/forerun \
	  $(DESTDIR)$(DATADIR)/zsh/site-functions/_forerun \
	  $(DESTDIR)$(DATADIR)/fish/vendor_completions.d/forerun.fish \
	  $(DESTDIR)$(UNITDIR)/forerun@.service $(DESTDIR)$(UNITDIR)/forerun-snapshotter.service \
	  $(DESTDIR)$(TMPFILESDIR)/forerun.conf
	rm -f $(addprefix $(DESTDIR)$(DOCDIR)/,LICENSE-APACHE LICENSE-MIT *.cdx.json *.licenses.txt examples/apparmor examples/fstab)
	-rmdir $(DESTDIR)$(DOCDIR)/examples $(DESTDIR)$(DOCDIR)
	@for name in $(NAMES); do \
	  link=$(DESTDIR)$(BINDIR)/$$name; \
	  if [ "$$(readlink $$link)" = forerun ]; then rm -f $$link; fi; \
	done
	@for name in mount.fuse.forerun umount.fuse.forerun $(HELPERS); do \
	  link=$(DESTDIR)$(HELPERDIR)/$$name; \
	  if [ "$$(readlink $$link)" = $(BINDIR)/forerun ]; then rm -f $$link; fi; \
	done

# The library for C, without debug information, which takes half a gigabyte. Programs find the shared one by the name that it
# has in it.
install-c:
	$(DIST_BUILD) --package forerun-c
	install -d $(DESTDIR)$(LIBDIR)
	objcopy --strip-unneeded $(DIST)/libforerun_c.so $(DESTDIR)$(LIBDIR)/libforerun.so.0
	chmod 755 $(DESTDIR)$(LIBDIR)/libforerun.so.0
	ln -sf libforerun.so.0 $(DESTDIR)$(LIBDIR)/libforerun.so
	objcopy --strip-debug $(DIST)/libforerun_c.a $(DESTDIR)$(LIBDIR)/libforerun.a
	chmod 644 $(DESTDIR)$(LIBDIR)/libforerun.a
	$(MAKE) --silent install-header

install-header:
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(INCLUDEDIR)
	install -m 644 crates/front/c/include/forerun.h $(DESTDIR)$(INCLUDEDIR)/forerun.h
	sed -e 's,@PREFIX@,$(PREFIX),' -e 's,@LIBDIR@,$(LIBDIR),' -e 's,@INCLUDEDIR@,$(INCLUDEDIR),' -e 's,@VERSION@,$(VERSION),' \
	  crates/front/c/forerun.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/forerun.pc

clean:
	$(CARGO) clean
