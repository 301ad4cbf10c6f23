# Does one piece of work on an image as a user with a shell does, and prints the microseconds that it took.
# $1: the work; $2: driver or program; $3: forerun; $4: the image; $5: an empty directory; $6: the largest file;
# $7: bytes of all files
set -eu
export LC_ALL=C
work=$1 by=$2 forerun=$3 image=$4 dir=$5 file=$6 contents=$7
mnt=$dir/mnt loop= listing=

finish() {
    umount "$mnt" 2>/dev/null || true
    [ -z "$loop" ] || losetup --detach "$loop"
    rm -f "$dir/scratch"
    [ -z "$listing" ] || rm -f "$listing"
}
trap finish EXIT
mkdir -p "$mnt" "$dir/none"
echo "one file" > "$dir/none/file"

# Programs are in memory before their run begins, with what they read to name owners and times.
cold() {
    sync
    echo 3 > /proc/sys/vm/drop_caches
    # Memory at hand, as before each run of forerun bench: in what state the host leaves it is no part of the work.
    "$forerun" __bench at-hand --between-reports --contents "$contents" > /dev/null
    "$1" --version > /dev/null 2>&1 || true
    [ "$work" != ls ] || ls -lR "$dir/none" > /dev/null
}

if [ "$work" = extract ]; then
    truncate --size=8G "$dir/scratch"
    mkfs.ext4 -q -F -E lazy_itable_init=1,lazy_journal_init=1 "$dir/scratch"
    mount -o loop "$dir/scratch" "$mnt"
    case $by in
        forerun) set -- "$forerun" extract --quiet --special-bits --devices -C "$mnt/out" "$image" ;;
        unsquashfs) set -- unsquashfs -quiet -no-progress -dest "$mnt/out" "$image" ;;
        fsck.erofs) set -- fsck.erofs --extract="$mnt/out" "$image" ;;
    esac
else
    case $by in
        forerun) "$forerun" mount -o ro "$image" "$mnt" ;;
        kernel) mount -o loop,ro "$image" "$mnt" ;;
        exfat-fuse)
            loop=$(losetup --find --show --read-only "$image")
            mount.exfat-fuse -o ro "$loop" "$mnt" > /dev/null 2>&1
            ;;
        *) "$by" "$image" "$mnt" > /dev/null 2>&1 ;;
    esac
    case $work in
        cat-cold) set -- cat "$mnt/$file" ;;
        ls)
            listing=$(mktemp --tmpdir=/dev/shm)
            set -- ls -lR .
            ;;
        # By the reader of forerun bench. With grep(1) and tar(1) some drivers take up to a third longer, and others do not;
        # tar reads nothing for an archive that it knows as /dev/null.
        tree) set -- "$forerun" __bench tree "$mnt" ;;
    esac
fi
cold "$1"
# Not by date(1): two more processes are a twentieth of the shortest work.
run='start=$EPOCHREALTIME
    "$@" >&3 2>&3 3>&-
    end=$EPOCHREALTIME
    echo $((${end/./} - ${start/./}))'
exec 3> "${listing:-/dev/null}"
# Who starts a program makes a difference to the scheduler. Readers are started by a shell that has just started, as by
# the timer of forerun bench; programs that extract by one that has run for a while, as forerun bench itself has.
case $work in
    extract) eval "$run" ;;
    ls) (cd "$mnt" && exec bash -euc "$run" run "$@") ;;
    *) bash -euc "$run" run "$@" ;;
esac
