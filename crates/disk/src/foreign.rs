//! Recognises disks of virtual machines, so that no search takes offsets in the file for offsets in
//! the disk.

use forerun_io::ReadAt;
use forerun_vfs::Result;

use crate::expanded::head;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Foreign {
    Qcow,
    Vmdk,
    Vdi,
    /// A dynamic or differencing disk of Connectix or Microsoft. A fixed one is a raw disk with a
    /// footer.
    Vhd,
    Vhdx,
}

impl Foreign {
    /// Returns the kind of a file that starts with `head`, which has at least
    /// [`PROBE_LEN`](crate::PROBE_LEN) bytes.
    #[must_use]
    pub fn of(head: &[u8]) -> Option<Self> {
        let has = |at, magic: &[u8]| head.get(at..).is_some_and(|rest| rest.starts_with(magic));
        let kinds: [(usize, &[u8], Self); 6] = [
            (0, b"QFI\xfb", Self::Qcow),
            (0, b"KDMV", Self::Vmdk),
            (0, b"# Disk DescriptorFile", Self::Vmdk),
            (0x40, &[0x7f, 0x10, 0xda, 0xbe], Self::Vdi),
            (0, b"conectix", Self::Vhd),
            (0, b"vhdxfile", Self::Vhdx),
        ];
        let found = kinds.into_iter().find(|(at, magic, _)| has(*at, magic));
        found.map(|(.., kind)| kind)
    }

    pub fn read(source: &dyn ReadAt) -> Result<Option<Self>> {
        Ok(Self::of(&head(source)?))
    }

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Qcow => "qcow2",
            Self::Vmdk => "vmdk",
            Self::Vdi => "vdi",
            Self::Vhd => "vhd",
            Self::Vhdx => "vhdx",
        }
    }
}
