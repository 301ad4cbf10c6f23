#!/bin/bash
# guest-run.sh [options] IMAGE... SCRIPT
#
# Boots a Debian kernel, the one that `cargo xtask guest-kernel` unpacked below target/ or else the
# newest in /boot, under qemu with an initramfs of busybox made on the spot, attaches every IMAGE as a
# read-only virtio disk (/dev/vda, /dev/vdb, ...), runs SCRIPT in the guest with busybox sh, powers
# off, and exits with SCRIPT's status. What SCRIPT prints appears on standard output. Software
# emulation: needs neither root nor KVM.
#
# Options:
#   --out FILE          a writable disk; its device is $OUT in SCRIPT
#   --disk FILE         another one, $DISK in SCRIPT
#   --log-writes FILE   what is written to $DISK, in the format of dm-log-writes
#   --mod NAME          load this kernel module and what it depends on; repeatable
#   --add HOST[:GUEST]  put a file into the guest, by default in /bin; repeatable
#   --mem MIB (512)  --timeout SECONDS (300)  --klog FILE  kernel messages  -v  times on stderr
#
# Exit status besides SCRIPT's: 2 usage, 124 past the limit of time, 125 the guest did not report.
set -u -o pipefail

die() { echo "guest-run.sh: $2" >&2; exit "$1"; }

MEM=512 LIMIT=300 KLOG=/dev/null VERBOSE= OUT= DISK= LOG= ADD=() MODULES=(virtio_pci virtio_blk)
while [ $# -gt 0 ]; do
  case $1 in
    --out) OUT=$2; shift 2 ;;
    --disk) DISK=$2; shift 2 ;;
    --log-writes) LOG=$2; shift 2 ;;
    --mod) MODULES+=("$2"); shift 2 ;;
    --add) ADD+=("$2"); shift 2 ;;
    --mem) MEM=$2; shift 2 ;;
    --timeout) LIMIT=$2; shift 2 ;;
    --klog) KLOG=$2; shift 2 ;;
    -v) VERBOSE=1; shift ;;
    --) shift; break ;;
    -*) die 2 "unknown option $1" ;;
    *) break ;;
  esac
done
[ $# -ge 1 ] || { sed -n '2,19s/^# \{0,1\}//p' "$0" >&2; exit 2; }
IMAGES=("${@:1:$#-1}")
SCRIPT=${!#}
[ -f "$SCRIPT" ] || die 2 "no script $SCRIPT"
export PATH="$PATH:/usr/sbin:/sbin"

WORK=$(mktemp -d "${TMPDIR:-/tmp}/guest-run.XXXXXX") || die 125 "no temporary directory"
trap 'rm -rf "$WORK"' EXIT
START=$(date +%s.%N)

# ---- the kernel ---------------------------------------------------------------------------------
# The newest that has all modules: kernels for clouds come without most filesystems.
TOP=$(cd "$(dirname "$0")/.." && pwd)
TARGET=${CARGO_TARGET_DIR:-target}
GUEST=$(cd "$TOP" && realpath -m "$TARGET")/guest
modules() { # ROOT VERSION
  local module
  for module in "${MODULES[@]}"; do
    modprobe -d "$1" -S "$2" --show-depends --ignore-install "$module" 2>> "$WORK/complaints" || return
  done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }'
}
COMPRESSED=
while read -r kernel; do
  VERSION=${kernel##*/vmlinuz-}
  [ -r "$kernel" ] && modules "${kernel%/boot/*}/" "$VERSION" > "$WORK/modules" &&
    COMPRESSED=$kernel && break
done < <(for boot in "$GUEST/boot" /boot; do printf '%s\n' "$boot"/vmlinuz-* | sort -rV; done)
[ "$COMPRESSED" ] || die 125 "no readable kernel in $GUEST/boot (cargo xtask guest-kernel) or /boot \
has the modules ${MODULES[*]}: $(cat "$WORK/complaints" 2> /dev/null)"

# Emulation takes 4 s to unpack an xz kernel, so it is unpacked here, once. The setup header of a
# bzImage tells where the payload is: setup sectors at 0x1f1, its offset and length at 0x248.
number() { od -An -t "u$2" -j "$1" -N "$2" "$COMPRESSED" | tr -d ' '; }
KERNEL=$GUEST/vmlinux-$VERSION
if [ ! -f "$KERNEL" ] || [ "$COMPRESSED" -nt "$KERNEL" ]; then
  SETUP=$(number $((0x1f1)) 1)
  [ "$SETUP" = 0 ] && SETUP=4
  FROM=$(($(number $((0x248)) 4) + (SETUP + 1) * 512))
  LENGTH=$(($(number $((0x24c)) 4) - 4))
  mkdir -p "$GUEST" &&
    head -c $((FROM + LENGTH)) "$COMPRESSED" | tail -c +$((FROM + 1)) | xz -dc > "$WORK/vmlinux" 2> /dev/null &&
    mv "$WORK/vmlinux" "$KERNEL.$$" && mv "$KERNEL.$$" "$KERNEL"
fi
# Another compression, or no place for it: the guest unpacks it.
[ -s "$KERNEL" ] || KERNEL=$COMPRESSED

# ---- the initramfs ------------------------------------------------------------------------------
ROOT=$WORK/root
mkdir -p "$ROOT"/{bin,sbin,dev,proc,sys,mnt,tmp,run,etc,usr/bin,usr/sbin,lib/modules}
cp "$(command -v busybox)" "$ROOT/bin/busybox" || die 125 "no busybox (package busybox-static)"
ln -s busybox "$ROOT/bin/sh"
: > "$ROOT/lib/modules/order"
while read -r module; do
  name=$(basename "$module")
  case $name in
    *.xz) name=${name%.xz}; xz -dc "$module" > "$ROOT/lib/modules/$name" ;;
    *) cp "$module" "$ROOT/lib/modules/" ;;
  esac || die 125 "cannot copy $module"
  echo "$name" >> "$ROOT/lib/modules/order"
done < "$WORK/modules"
for add in ${ADD[@]+"${ADD[@]}"}; do
  host=${add%%:*} guest=${add#*:}
  [ "$guest" = "$add" ] && guest=/bin/$(basename "$host")
  mkdir -p "$ROOT/$(dirname "$guest")" && cp -rL "$host" "$ROOT/$guest" || die 125 "cannot add $host"
done
cp "$SCRIPT" "$ROOT/script"
cat > "$ROOT/init" << 'INIT'
#!/bin/busybox sh
/bin/busybox --install -s
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/ TERM=dumb
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmp /tmp
value() { sed -n "s/.* $1=\([^ ]*\).*/\1/p" /proc/cmdline; }
# A module that does not load leaves a line in the kernel's log; what needs it fails by itself.
while read -r module; do insmod "/lib/modules/$module" 2> /dev/kmsg; done < /lib/modules/order
# The serial line must not turn newlines into pairs.
stty -F /dev/ttyS1 raw -echo
tries=0
while [ $tries -lt 100 ] && [ "$(ls /sys/block | grep -c '^vd')" -lt "$(value guest.disks)" ]; do
  sleep 0.1; tries=$((tries + 1))
done
OUT=$(value guest.out) DISK=$(value guest.disk); export OUT DISK
# In a shell of its own, so that its status is reported even if it exits.
( . /script ) > /dev/ttyS1 2>&1 < /dev/null
echo "STATUS=$? UPTIME=$(cut -d' ' -f1 /proc/uptime)" > /tmp/status
cd /; sync; cat /tmp/status > /dev/ttyS2; sleep 0.05
poweroff -f
INIT
chmod +x "$ROOT/init"
(cd "$ROOT" && find . | cpio -o -H newc --quiet) > "$WORK/initrd" || die 125 "cpio failed"

# ---- the machine --------------------------------------------------------------------------------
# File names go through qemu's JSON, so that commas in them are not options.
quote() { printf '%s' "$1" | sed 's/[\\"]/\\&/g'; }
DISKS=() COUNT=0
node() { # NAME FILE READ-ONLY
  local file
  file=$(realpath -- "$2") && [ -r "$file" ] || die 2 "cannot read $2"
  DISKS+=(-blockdev "{\"driver\":\"raw\",\"node-name\":\"$1\",\"read-only\":$3,\
\"file\":{\"driver\":\"file\",\"filename\":\"$(quote "$file")\"}}")
}
attach() { # FILE READ-ONLY [LOG]
  if [ "${3-}" ]; then
    : > "$3" || die 2 "cannot write $3"
    node "data$COUNT" "$1" false
    node "log$COUNT" "$3" false
    DISKS+=(-blockdev "{\"driver\":\"blklogwrites\",\"node-name\":\"d$COUNT\",\
\"file\":\"data$COUNT\",\"log\":\"log$COUNT\",\"log-sector-size\":512}")
  else
    node "d$COUNT" "$1" "$2"
  fi
  DISKS+=(-device "virtio-blk-pci,drive=d$COUNT")
  COUNT=$((COUNT + 1))
}
for image in ${IMAGES[@]+"${IMAGES[@]}"}; do attach "$image" true; done
LETTERS=abcdefghijklmnopqrstuvwxyz OUT_DEVICE= DISK_DEVICE=
[ -n "$OUT" ] && { OUT_DEVICE=/dev/vd${LETTERS:$COUNT:1}; attach "$OUT" false; }
[ -n "$DISK" ] && { DISK_DEVICE=/dev/vd${LETTERS:$COUNT:1}; attach "$DISK" false "$LOG"; }
[ "$COUNT" -le 26 ] || die 2 "more than 26 disks"
BOOT=$(date +%s.%N)
timeout -k 5 "$LIMIT" qemu-system-x86_64 -machine pc -accel tcg,tb-size=256 -cpu qemu64 -m "$MEM" \
  -nodefaults -no-user-config -display none -no-reboot -kernel "$KERNEL" -initrd "$WORK/initrd" \
  -append "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off nokaslr no_timer_check \
tsc=reliable random.trust_cpu=on noreplace-smp audit=0 guest.disks=$COUNT guest.out=$OUT_DEVICE \
guest.disk=$DISK_DEVICE " \
  -serial "file:$KLOG" -serial stdio -serial "file:$WORK/status" "${DISKS[@]}" < /dev/null
QEMU=$?
[ "$VERBOSE" ] && awk -v a="$START" -v b="$BOOT" -v c="$(date +%s.%N)" -v s="$(cat "$WORK/status")" \
  'BEGIN { printf "guest-run: set-up %.2f s, guest %.2f s, %s\n", b - a, c - b, s }' >&2
[ $QEMU = 124 ] && die 124 "the guest ran past $LIMIT s"
STATUS=$(sed -n 's/.*STATUS=\([0-9]*\).*/\1/p' "$WORK/status" | tail -n 1)
[ -n "$STATUS" ] || die 125 "no status from the guest (qemu gave $QEMU)"
exit "$STATUS"
