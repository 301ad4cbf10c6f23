//! Describes volumes and nodes for `info` and `dump`, with the specification's field names.

use forerun_vfs::{NodeId, Result};

use crate::ondisk::volume_flag;
use crate::session::Session;
use crate::time::Stamp;
use crate::volume::Volume;

type Fields = Vec<(&'static str, String)>;

/// Maximum number of cluster runs that are shown for one node.
const RUNS: usize = 64;

pub fn details(volume: &Volume) -> Fields {
    let boot = &volume.boot;
    let (major, minor) = (boot.revision >> 8, boot.revision & 0xFF);
    let mut fields = vec![
        ("revision", format!("{major}.{minor:02}")),
        ("serial number", format!("{:08x}", boot.serial)),
        ("sector size", boot.sector_size().to_string()),
        ("cluster size", boot.cluster_size().to_string()),
        ("clusters", boot.clusters.to_string()),
        ("FATs", boot.fats.to_string()),
        ("state", state(boot.flags).into()),
    ];
    if let Some(guid) = &volume.guid {
        fields.push(("volume GUID", guid_text(guid)));
    }
    if volume.from_backup {
        fields.push(("boot region", "backup: the main one is damaged".into()));
    }
    fields
}

pub fn warnings(volume: &Volume) -> Vec<String> {
    let flags = volume.boot.flags;
    let passed_over = volume.passed_over.iter();
    let mut all: Vec<_> = passed_over
        .map(|error| format!("passed over: {error}"))
        .collect();
    if flags & volume_flag::VOLUME_DIRTY != 0 {
        let text = "the volume is marked dirty: it was not unmounted, or is damaged; \
                    run forerun check --repair";
        all.push(text.into());
    }
    if flags & volume_flag::MEDIA_FAILURE != 0 {
        let text = "the volume is marked as having failed: copy your data from it";
        all.push(text.into());
    }
    all
}

const fn state(flags: u16) -> &'static str {
    let dirty = flags & volume_flag::VOLUME_DIRTY != 0;
    match (dirty, flags & volume_flag::MEDIA_FAILURE != 0) {
        (false, false) => "clean",
        (true, false) => "dirty",
        (false, true) => "media failure",
        (true, true) => "dirty, media failure",
    }
}

/// Returns the fields of the boot sector, and the runs of the bitmap.
pub fn volume(volume: &Volume) -> Fields {
    let boot = &volume.boot;
    let mut fields = vec![
        ("PartitionOffset", boot.partition_offset.to_string()),
        ("VolumeLength", boot.declared_len.to_string()),
        (
            "FatOffset",
            (boot.fat_offset >> boot.sector_bits).to_string(),
        ),
        ("FatLength", (boot.fat_len >> boot.sector_bits).to_string()),
        (
            "ClusterHeapOffset",
            (boot.heap_offset >> boot.sector_bits).to_string(),
        ),
        ("ClusterCount", boot.clusters.to_string()),
        ("FirstClusterOfRootDirectory", boot.root.to_string()),
        ("VolumeSerialNumber", format!("{:#010x}", boot.serial)),
        ("FileSystemRevision", format!("{:#06x}", boot.revision)),
        ("VolumeFlags", format!("{:#06x}", boot.flags)),
        ("BytesPerSectorShift", boot.sector_bits.to_string()),
        (
            "SectorsPerClusterShift",
            (boot.cluster_bits - boot.sector_bits).to_string(),
        ),
        ("NumberOfFats", boot.fats.to_string()),
        ("PercentInUse", boot.percent.to_string()),
    ];
    for run in volume.bitmap.runs().iter().take(RUNS) {
        let text = format!("{} clusters at {}", run.count, run.cluster);
        fields.push(("AllocationBitmap", text));
    }
    if let Some(guid) = &volume.guid {
        fields.push(("VolumeGuid", guid_text(guid)));
    }
    fields
}

/// Returns the fields of an entry set, and the runs of its clusters.
pub fn node(session: &mut Session<'_>, id: NodeId) -> Result<Fields> {
    let node = session.load(id)?;
    let set = &node.set;
    let (file, stream) = (set.file(), set.stream());
    let time = |stamp: Stamp| {
        let offset = match stamp.offset & 0x80 {
            0 => "no offset".into(),
            _ => format!("offset {:#04x}", stamp.offset),
        };
        format!("{:#010x} +{:02} {offset}", stamp.word, stamp.hundredths)
    };
    let mut fields = vec![
        ("offset", format!("{:#x}", node.at())),
        ("SecondaryCount", file.secondary_count.to_string()),
        ("SetChecksum", format!("{:#06x}", file.set_checksum.get())),
        (
            "FileAttributes",
            format!("{:#06x}", file.file_attributes.get()),
        ),
        ("Create", time(set.created())),
        ("LastModified", time(set.modified())),
        ("LastAccessed", time(set.accessed())),
        (
            "GeneralSecondaryFlags",
            format!("{:#04x}", stream.general_secondary_flags),
        ),
        ("NameLength", stream.name_length.to_string()),
        ("NameHash", format!("{:#06x}", stream.name_hash.get())),
        ("ValidDataLength", stream.valid_data_length.to_string()),
        ("FirstCluster", stream.first_cluster.to_string()),
        ("DataLength", stream.data_length.to_string()),
    ];
    let chain = session.chain(id)?;
    for run in chain.runs().iter().take(RUNS) {
        let text = format!("{} clusters at {}", run.count, run.cluster);
        fields.push(("clusters", text));
    }
    Ok(fields)
}

/// Formats a GUID. Its first three groups are little-endian numbers.
fn guid_text(guid: &[u8; 16]) -> String {
    let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let mut text = String::new();
    for (place, index) in order.into_iter().enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text += &format!("{:02x}", guid[index]);
    }
    text
}
