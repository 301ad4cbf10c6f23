//! File handles, as NFS servers and overlayfs use them.

use std::process::Command;

use forerun::Image;
use forerun_fuse::{MountOptions, mount};
use forerun_testkit::require;

use crate::common::{Place, can_mount, romfs, run};

/// Takes handles of paths below a mount, makes the kernel forget what it knows of them, and opens them. Prints
/// the contents of files and the names in directories.
const HANDLES: &str = r#"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("handle", ctypes.c_ubyte * 128)]
def ok(result, what):
    if result < 0:
        sys.exit(what + ": " + os.strerror(ctypes.get_errno()))
    return result
mount = os.open(sys.argv[1], os.O_RDONLY)
handles = []
for path in sys.argv[2:]:
    handle, number = Handle(128), ctypes.c_int()
    named = os.path.join(sys.argv[1], path).encode()
    ok(libc.name_to_handle_at(-100, named, ctypes.byref(handle), ctypes.byref(number), 0), path)
    handles.append(handle)
with open("/proc/sys/vm/drop_caches", "w") as drop:
    drop.write("2")
for path, handle in zip(sys.argv[2:], handles):
    opened = ok(libc.open_by_handle_at(mount, ctypes.byref(handle), os.O_RDONLY), path)
    if os.path.isdir("/proc/self/fd/%d" % opened):
        print(os.readlink("/proc/self/fd/%d" % opened), sorted(os.listdir(opened)))
    else:
        print(os.read(opened, 100))
"#;

#[test]
fn handles_open_files_and_directories_that_the_kernel_has_forgotten() {
    let place = Place::new("handles");
    let (tree, image) = (place.dir().join("tree"), place.dir().join("image"));
    std::fs::create_dir_all(tree.join("a/b/c")).unwrap();
    std::fs::write(tree.join("a/b/c/file"), "deep").unwrap();
    std::fs::write(tree.join("top"), "top").unwrap();
    let has_python = require::program("python3").is_some();
    if !can_mount() || !require::root() || !has_python || !romfs(&tree, &image, &[]) {
        return;
    }
    let image = Image::open(&image).unwrap();
    let mounted = mount(&image, &place.mnt(), &MountOptions::default()).unwrap();
    let mut python = Command::new("python3");
    python.args(["-c", HANDLES]).arg(place.mnt());
    let (done, printed) = run(python.args(["top", "a/b/c/file", "a/b/c", "a"]));
    assert!(done, "{printed}");
    let mnt = place.mnt().canonicalize().unwrap().display().to_string();
    let expected = format!("b'top'\nb'deep'\n{mnt}/a/b/c ['file']\n{mnt}/a ['b']\n");
    assert_eq!(printed, expected);
    drop(mounted);
}

/// overlayfs finds its lower files again by their handles.
#[test]
fn overlayfs_exports_a_mount_below_it() {
    let place = Place::new("handles-overlay");
    let (tree, image) = (place.dir().join("tree"), place.dir().join("image"));
    std::fs::create_dir_all(tree.join("dir")).unwrap();
    std::fs::write(tree.join("dir/file"), "below").unwrap();
    let has_python = require::program("python3").is_some();
    if !can_mount() || !require::root() || !has_python || !romfs(&tree, &image, &[]) {
        return;
    }
    let image = Image::open(&image).unwrap();
    let mounted = mount(&image, &place.mnt(), &MountOptions::default()).unwrap();
    let script =
        "set -e; cd \"$1\"; mkdir top; mount -t tmpfs top top; mkdir top/upper top/work all
mount -t overlay -o lowerdir=mnt,upperdir=top/upper,workdir=top/work,index=on,nfs_export=on all all
python3 -c \"$2\" all dir/file dir || echo FAILED
umount all; umount top";
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "sh", "-c", script, "sh"]);
    let (done, printed) = run(shell.arg(place.dir()).arg(HANDLES));
    assert!(done, "{printed}");
    assert!(printed.starts_with("b'below'\n"), "{printed}");
    assert!(printed.contains("/dir ['file']"), "{printed}");
    drop(mounted);
}
