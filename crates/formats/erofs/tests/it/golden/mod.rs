//! Small images with features that Debian's mkfs.erofs lacks. They were made by mkfs.erofs 1.9.3
//! with blocks of 512 bytes, from the tree that [`tree`] describes; Linux 6.18 shows the same tree
//! in each. Options: bits48 `-E48bit`; zone `--MZ`; metabox `-zlz4hc -C4096 -m4096`; metabox48
//! `-zlzma -C4096 -m4096 -E48bit,fragments --xattr-prefix=user.org.example. -x1`; packed `-zlz4hc
//! -Efragments -C4096` and that prefix; zdirs `-zzstd --zD=1 -C4096`; deflate `-zdeflate -C8192`;
//! lzma `-zlzma -C8192 -Eztailpacking`; extents `-zlz4hc -E48bit -C4096`; mixed `-zlz4hc:lzma
//! -C2048 -Ededupe,all-fragments`; chunks `-Eforce-chunk-indexes,48bit --chunksize=512`.

use std::collections::BTreeMap;

pub fn images() -> Vec<(&'static str, Vec<u8>)> {
    macro_rules! image {
        ($name:literal) => {
            ($name, include_bytes!(concat!($name, ".img")).to_vec())
        };
    }
    vec![
        image!("bits48"),
        image!("zone"),
        image!("metabox"),
        image!("metabox48"),
        image!("packed"),
        image!("zdirs"),
        image!("deflate"),
        image!("lzma"),
        image!("extents"),
        image!("mixed"),
        image!("chunks"),
    ]
}

/// Clears the checksum's feature bit, so that tests can change bytes.
pub fn without_checksum(image: &[u8]) -> Vec<u8> {
    let mut image = image.to_vec();
    image[1024 + 8] &= !1;
    image
}

pub fn files() -> BTreeMap<Vec<u8>, Vec<u8>> {
    let text: Vec<u8> = (0..150)
        .flat_map(|n| format!("line {n} of a text that compresses\n").into_bytes())
        .collect();
    let mut state = 12_345_u32;
    let noise: Vec<u8> = (0..1500)
        .map(|_| {
            state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            (state >> 16) as u8
        })
        .collect();
    let mut files = BTreeMap::new();
    for n in 0..12 {
        let name = format!("dir/name {n:02}").into_bytes();
        files.insert(name, format!("file {n}\n").into_bytes());
    }
    files.insert(b"dir/sub/tail".to_vec(), text[..2001].to_vec());
    for name in ["noise", "hard"] {
        files.insert(name.into(), noise.clone());
    }
    for name in ["text", "twin"] {
        files.insert(name.into(), text.clone());
    }
    files
}
