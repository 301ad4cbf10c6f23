//! The options of `mksquashfs` and `sqfstar`, and their names.

/// The program whose command line it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// MakeSources and the image, then options.
    Mksquashfs,
    /// Options, then the image and what is left out of the archive.
    Sqfstar,
}

/// An option of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MakeOpt {
    Version,
    Help,
    Tar,
    Comp,
    BlockSize,
    MkfsTime,
    AllTime,
    Exports(bool),
    NoSparse,
    Xattrs(bool),
    NoInodes,
    NoIds,
    NoData,
    NoFragmentData,
    NoXattrData,
    Tails(bool),
    NoFragments,
    NoDuplicates,
    NoHardLinks,
    AllRoot,
    RootTime,
    RootMode,
    RootUid,
    RootGid,
    ForceUid,
    ForceGid,
    KeepDirectory,
    Definition,
    DefinitionFile,
    Sort,
    Excludes,
    ExcludeFile,
    Wildcards,
    Regex,
    OneFileSystem,
    /// Replaces the file that is there.
    Replace,
    ExitOnError,
    Quiet,
    Info,
    Progress(bool),
    Percentage,
    Processors,
    Memory,
    NoPad,
    Offset,
    RecoveryPath,
    /// Accepted without effect.
    Nothing,
}

/// The options of both programs, and their names.
const TABLE: &[(&[&str], MakeOpt)] = &[
    (&["version"], MakeOpt::Version),
    (&["help", "h"], MakeOpt::Help),
    (&["comp"], MakeOpt::Comp),
    (&["b"], MakeOpt::BlockSize),
    (&["mkfs-time", "fstime"], MakeOpt::MkfsTime),
    (&["all-time"], MakeOpt::AllTime),
    (&["exports"], MakeOpt::Exports(true)),
    (&["no-sparse"], MakeOpt::NoSparse),
    (&["xattrs"], MakeOpt::Xattrs(true)),
    (&["no-xattrs"], MakeOpt::Xattrs(false)),
    (&["noI", "noInodeCompression"], MakeOpt::NoInodes),
    (&["noId", "noIdTableCompression"], MakeOpt::NoIds),
    (&["noD", "noDataCompression"], MakeOpt::NoData),
    (&["noF", "noFragmentCompression"], MakeOpt::NoFragmentData),
    (&["noX", "noXattrCompression"], MakeOpt::NoXattrData),
    (&["no-tailends"], MakeOpt::Tails(false)),
    (&["no-fragments"], MakeOpt::NoFragments),
    (&["no-duplicates"], MakeOpt::NoDuplicates),
    (&["no-hardlinks"], MakeOpt::NoHardLinks),
    (&["all-root", "root-owned"], MakeOpt::AllRoot),
    (&["root-time"], MakeOpt::RootTime),
    (&["root-mode"], MakeOpt::RootMode),
    (&["root-uid"], MakeOpt::RootUid),
    (&["root-gid"], MakeOpt::RootGid),
    (&["force-uid"], MakeOpt::ForceUid),
    (&["force-gid"], MakeOpt::ForceGid),
    (&["ef"], MakeOpt::ExcludeFile),
    (&["regex"], MakeOpt::Regex),
    (&["exit-on-error"], MakeOpt::ExitOnError),
    (&["quiet"], MakeOpt::Quiet),
    (&["info"], MakeOpt::Info),
    (&["progress"], MakeOpt::Progress(true)),
    (&["no-progress"], MakeOpt::Progress(false)),
    (&["throttle", "limit"], MakeOpt::Percentage),
    (&["processors"], MakeOpt::Processors),
    (&["mem"], MakeOpt::Memory),
    (&["nopad"], MakeOpt::NoPad),
    (&["offset", "o"], MakeOpt::Offset),
    (&["reproducible", "not-reproducible"], MakeOpt::Nothing),
];

/// The options of `mksquashfs` alone.
const MKSQUASHFS: &[(&[&str], MakeOpt)] = &[
    (&["tar"], MakeOpt::Tar),
    (&["no-exports"], MakeOpt::Exports(false)),
    (&["tailends", "always-use-fragments"], MakeOpt::Tails(true)),
    (&["keep-as-directory"], MakeOpt::KeepDirectory),
    (&["p"], MakeOpt::Definition),
    (&["pf"], MakeOpt::DefinitionFile),
    (&["sort"], MakeOpt::Sort),
    (&["e"], MakeOpt::Excludes),
    (&["wildcards"], MakeOpt::Wildcards),
    (&["one-file-system"], MakeOpt::OneFileSystem),
    (&["noappend"], MakeOpt::Replace),
    (&["no-recovery"], MakeOpt::Nothing),
    (&["recovery-path"], MakeOpt::RecoveryPath),
];

/// The options of `sqfstar` alone.
const SQFSTAR: &[(&[&str], MakeOpt)] = &[(&["force"], MakeOpt::Replace)];

/// Returns the option of a program with this name, without the dash.
pub fn find(tool: Tool, name: &[u8]) -> Option<MakeOpt> {
    let own = match tool {
        Tool::Mksquashfs => MKSQUASHFS,
        Tool::Sqfstar => SQFSTAR,
    };
    let mut all = TABLE.iter().chain(own);
    let found = all.find(|(names, _)| names.iter().any(|known| known.as_bytes() == name));
    found.map(|(_, option)| *option)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_known_once_and_documented() {
        let text = include_str!("../../../../../docs/compat.md");
        let (_, text) = text.split_once("## mksquashfs").unwrap();
        let all = TABLE.iter().chain(MKSQUASHFS).chain(SQFSTAR);
        let names: Vec<_> = all.flat_map(|(names, _)| names.iter()).collect();
        for name in &names {
            let times = names.iter().filter(|other| other == &name).count();
            assert_eq!(times, 1, "{name}");
            let mut ends = ["`", " "].iter();
            let is_named = ends.any(|end| text.contains(&format!("`-{name}{end}")));
            assert!(is_named, "{name}");
        }
    }
}
