//! SIF files, put together object by object.

use forerun_io::u64_from;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Type of a partition.
pub const PARTITION: u32 = 0x4004;
/// Type of the index of a container image.
pub const ROOT_INDEX: u32 = 0x400A;
/// Type of a blob of a container image.
pub const BLOB: u32 = 0x400B;
/// The media type of the layers that Singularity makes.
pub const SQUASHFS_LAYER: &str = "application/vnd.sylabs.image.layer.v1.squashfs";

const DESCRIPTOR: usize = 585;
const TABLE: usize = 4096;
/// Where the first object begins.
pub const DATA: usize = 36_864;

struct Object {
    kind: u32,
    extra: Vec<u8>,
    bytes: Vec<u8>,
}

/// A SIF file with room for 48 objects.
#[derive(Default)]
pub struct SifFile {
    objects: Vec<Object>,
}

impl SifFile {
    /// Adds an object. `extra` is what its descriptor says of an object of this type.
    pub fn add(&mut self, kind: u32, extra: &[u8], bytes: &[u8]) -> &mut Self {
        self.objects.push(Object {
            kind,
            extra: extra.to_vec(),
            bytes: bytes.to_vec(),
        });
        self
    }

    /// Adds a partition: the number of its filesystem (1 is SquashFS, 2 ext3, 4 any), and that of
    /// its kind (2 is the root, 4 an overlay).
    pub fn partition(&mut self, filesystem: u8, kind: u8, bytes: &[u8]) -> &mut Self {
        let extra = [filesystem, 0, 0, 0, kind, 0, 0, 0, b'0', b'2'];
        self.add(PARTITION, &extra, bytes)
    }

    /// Adds a blob, and returns its descriptor for OCI documents.
    pub fn blob(&mut self, media_type: &str, bytes: &[u8]) -> Value {
        let digest = format!("sha256:{}", hex(&Sha256::digest(bytes)));
        self.add(BLOB, digest.as_bytes(), bytes);
        json!({"mediaType": media_type, "digest": digest, "size": bytes.len()})
    }

    /// Adds an image of these layers, each a media type and bytes, and returns the descriptor of
    /// its manifest.
    pub fn image(&mut self, layers: &[(&str, &[u8])]) -> Value {
        let layers = layers.iter().map(|(kind, bytes)| self.blob(kind, bytes));
        let layers: Vec<Value> = layers.collect();
        let config = self.blob("application/vnd.oci.image.config.v1+json", b"{}");
        let manifest = json!({"schemaVersion": 2, "config": config, "layers": layers});
        let manifest = serde_json::to_vec(&manifest).unwrap();
        self.blob("application/vnd.oci.image.manifest.v1+json", &manifest)
    }

    /// Adds the index of these images.
    pub fn index(&mut self, manifests: &[Value]) -> &mut Self {
        let index = json!({"schemaVersion": 2, "manifests": manifests});
        let index = serde_json::to_vec(&index).unwrap();
        self.add(ROOT_INDEX, &[], &index)
    }

    /// Returns the bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = vec![0; DATA];
        let launch = b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\x0001\x00";
        put(&mut out, 0, launch);
        let root = |object: &&Object| object.kind == PARTITION && object.extra[4] == 2;
        let arch = match self.objects.iter().find(root) {
            Some(_) => b"02",
            None => b"00",
        };
        put(&mut out, 45, arch);
        put(&mut out, 88, &48_u64.to_le_bytes());
        put(&mut out, 96, &u64_from(TABLE).to_le_bytes());
        put(&mut out, 104, &u64_from(48 * DESCRIPTOR).to_le_bytes());
        for ((id, n), object) in (1_u32..).zip(0..).zip(&self.objects) {
            let offset = u64_from(out.len());
            let at = TABLE + n * DESCRIPTOR;
            put(&mut out, at, &object.kind.to_le_bytes());
            put(&mut out, at + 4, &[1]);
            put(&mut out, at + 5, &id.to_le_bytes());
            put(&mut out, at + 9, &0xf000_0001_u32.to_le_bytes());
            put(&mut out, at + 17, &offset.to_le_bytes());
            let len = u64_from(object.bytes.len());
            put(&mut out, at + 25, &len.to_le_bytes());
            put(&mut out, at + 201, &object.extra);
            out.extend_from_slice(&object.bytes);
        }
        out
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    out[at..at + bytes.len()].copy_from_slice(bytes);
}
