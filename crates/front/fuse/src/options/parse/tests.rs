//! Defaults, every word with its value, fstab words, and invalid options.

use forerun::unstable::WriteOptions;

use super::*;

fn parse(list: &str) -> MountOptions {
    MountOptions::parse(list).unwrap_or_else(|error| panic!("{list}: {error}"))
}

#[test]
fn nothing_is_the_default() {
    for list in [
        "",
        "defaults",
        ",,",
        ",,defaults",
        "async",
        "tz=UTC",
        "iocharset=utf8",
    ] {
        assert_eq!(parse(list), MountOptions::default(), "{list}");
    }
    let read_only = MountOptions {
        ro_asked: true,
        ..MountOptions::default()
    };
    assert_eq!(parse("rw,ro,defaults"), read_only);
    assert!(!MountOptions::default().suid && !MountOptions::default().dev);
}

#[test]
fn every_value_is_set() {
    let options = parse(
        "ro,offset=1M,size=2G,device=/a,device=b\\,c,objects=/o,basedir=/b,basedir=c,verity=require,digest=ABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABAB,uid=1000,gid=100,umask=027,allow_other,default_permissions,\
         auto_unmount,readahead=16M,cache=1G,threads=3,nolargeblocks,fsname=x\\,y\\\\z,\
         subtype=other,suid,dev,noexec,salvage",
    );
    let expected = MountOptions {
        offset: 1 << 20,
        size: Some(2 << 30),
        devices: vec!["/a".into(), "b,c".into()],
        objects: Some("/o".into()),
        base_dirs: vec!["/b".into(), "c".into()],
        verity: forerun_vfs::Verity::Require,
        digest: Some("ab".repeat(32)),
        uid: Some(1000),
        gid: Some(100),
        umask: Some(0o27),
        allow_other: true,
        default_permissions: true,
        auto_unmount: true,
        readahead: Some(16 << 20),
        cache: Some(1 << 30),
        threads: Some(3),
        large_blocks: false,
        fsname: Some("x,y\\z".to_string()),
        subtype: "other".to_string(),
        suid: true,
        dev: true,
        exec: false,
        ro_asked: true,
        rescue: true,
        ..MountOptions::default()
    };
    assert_eq!(options, expected);
    let open = options.open_options();
    assert_eq!((open.offset, open.size), (1 << 20, Some(2 << 30)));
    let engine = open.engine;
    assert!(!engine.large_blocks);
    assert_eq!(
        (engine.readahead, engine.cache, engine.threads),
        (16 << 20, 1 << 30, 3)
    );
}

#[test]
fn later_words_win() {
    assert!(parse("nolargeblocks,largeblocks").large_blocks);
    assert_eq!(parse("subtype=x,subtype=").subtype, "");
    assert!(!parse("suid,nosuid").suid);
    assert!(!parse("suid,dev,user").suid);
    assert!(parse("user,exec").exec);
    assert!(!parse("rw,ro").rw_asked);
    assert!(parse("ro,rw").rw_asked && !parse("ro,rw").ro_asked);
}

#[test]
fn options_of_volumes_that_change() {
    let options = parse(
        "rw,uid=5,umask=077,dmask=022,iocharset=utf8,errors=continue,dirsync,discard,\
         time_offset=-90,keep_last_dots",
    );
    let write = WriteOptions {
        dirsync: true,
        sync: false,
        discard: true,
        continue_on_error: true,
        driver_options: vec!["keep_last_dots"],
    };
    assert_eq!(options.write, write);
    let open = options.open_options().ownership;
    assert_eq!((open.uid, open.gid, open.zone), (5, 0, Zone::fixed(-90)));
    assert_eq!((open.file_mask, open.directory_mask), (0o77, 0o22));
    assert!(parse("sync").write.sync && parse("sync").write.dirsync);
    assert!(
        !parse("errors=continue,errors=remount-ro")
            .write
            .continue_on_error
    );
    for (list, expected) in [
        ("ro", Locking::Respect),
        ("ro,nolock", Locking::Ignore),
        ("break_lock", Locking::Break),
    ] {
        assert_eq!(parse(list).open_options().locking, expected, "{list}");
    }
    let plain = parse("").open_options().ownership;
    assert_eq!(plain, forerun_vfs::Ownership::default());
}

#[test]
fn words_of_fstab_are_accepted() {
    let line = "rw,noauto,nofail,_netdev,x-systemd.automount,x-systemd.idle-timeout=10,\
                X-mount.mkdir,comment=a,nosuid,nodev,noatime,relatime,nouser,user=alice";
    let options = parse(line);
    assert!(options.rw_asked && !options.exec);
}

#[test]
fn mistakes_are_named() {
    for (list, expected) in [
        ("largeblock", "unknown mount option \"largeblock\""),
        ("x=1", "unknown mount option \"x=1\""),
        (
            "ro=1",
            "mount option ro takes no value, but was given \"1\"",
        ),
        ("offset", "mount option offset needs a value: a number"),
        ("uid=", "mount option uid needs a value"),
        ("uid=root", "mount option uid=root: not a number from 0"),
        ("uid=4294967295", "mount option uid=4294967295: not"),
        ("umask=9", "mount option umask=9: not an octal number"),
        (
            "size=1Q",
            "mount option size=1Q: not a number of bytes such as",
        ),
        (
            "threads=0",
            "mount option threads=0: not a number from 1 to 256",
        ),
        ("fsname=a\nb", "mount option fsname=a\nb: not a name"),
        ("iocharset=cp437", "mount option iocharset=cp437: not utf8"),
        (
            "errors=panic",
            "mount option errors=panic: not continue or remount-ro",
        ),
        (
            "time_offset=1441",
            "mount option time_offset=1441: not minutes",
        ),
        (
            "tz=../../etc/passwd",
            "mount option tz=../../etc/passwd: not a zone such as Europe/Berlin",
        ),
    ] {
        let message = MountOptions::parse(list).unwrap_err().to_string();
        assert!(message.starts_with(expected), "{list}: {message}");
    }
    let mut sloppy = MountOptions::default();
    assert_eq!(
        sloppy.apply_known("foo,ro,bar=1,umask=7").unwrap(),
        ["foo", "bar=1"]
    );
    assert_eq!(sloppy.umask, Some(7));
    assert!(sloppy.apply_known("umask=9").is_err());
    let unknown = MountOptions::parse("foo").unwrap_err().to_string();
    assert!(unknown.contains("offset=, size=") && unknown.contains("nolargeblocks"));
    assert!(!unknown.contains("lazytime"));
}

#[test]
fn labels_may_have_commas_in_quotes() {
    let list = "context=\"system_u:object_r:tmp_t:s0:c127,c456\",ro,rootcontext=a:b:c";
    let options = MountOptions::parse(list).unwrap();
    let labels = [
        (
            "context",
            "system_u:object_r:tmp_t:s0:c127,c456".to_string(),
        ),
        ("rootcontext", "a:b:c".to_string()),
    ];
    assert_eq!(options.labels, labels);
    assert!(options.ro_asked);
    // Other values keep their quotes.
    let options = MountOptions::parse("fsname=a\"b,rw").unwrap();
    assert_eq!(options.fsname.as_deref(), Some("a\"b"));
    assert!(options.rw_asked);
}
