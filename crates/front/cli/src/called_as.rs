//! Other program names (such as `unsquashfs`) that run forerun's commands.

use forerun::Writer;
use forerun::build::Tree;
use forerun_compat::{Commands, MountCall, RepairCall, VolumeCall};

use crate::args::ImageArgs;
use crate::commands::check::{self, CheckArgs};
use crate::commands::label::{self, LabelArgs};
use crate::commands::mkfs::{self, MkfsArgs, VolumeFormat};
use crate::commands::pack::{self, VolumeArgs};
use crate::context::Context;
use crate::error::Result;
use crate::mount::{self, LikeOther, MountArgs};
use crate::target::Target;

pub static COMMANDS: Commands = Commands {
    is_in_background: mount::is_in_background,
    mount,
    label,
    make_volume,
    repair,
    make_image,
};

fn mount(context: &Context, call: &MountCall) -> Result {
    let args = MountArgs {
        foreground: call.foreground,
        options: call.options.clone(),
        format: Some(call.format.to_string()),
        like: LikeOther {
            permissive: call.permissive,
            idle: call.idle,
        },
        ..MountArgs::new(&call.image, &call.dir)
    };
    mount::run(context, &args)
}

fn label(context: &Context, image: ImageArgs, label: String) -> Result {
    let args = LabelArgs {
        image,
        label: Some(label),
        break_lock: false,
    };
    label::run(context, &args)
}

fn make_volume(context: &Context, call: &VolumeCall) -> Result {
    let args = MkfsArgs {
        format: VolumeFormat::Exfat,
        output: call.output.clone(),
        size: None,
        label: call.label.clone(),
        force: true,
        cluster_size: call.cluster,
        volume: VolumeArgs::with_align(call.boundary),
    };
    mkfs::run(context, &args)
}

fn repair(context: &Context, call: RepairCall) -> Result {
    let args = CheckArgs {
        image: call.image,
        quick: false,
        report: None,
        repair: true,
        yes: call.yes,
        dry_run: false,
        lost_found: call.lost_found,
        undo_file: Some("none".into()),
        undo: None,
        force: false,
        break_lock: false,
    };
    check::run(context, &args)
}

fn make_image(
    context: &Context,
    writer: &Writer,
    tree: &mut Tree,
    (target, blob): (Target, Option<Target>),
    output: &std::path::Path,
) -> Result {
    pack::make(
        context,
        writer,
        tree,
        (target, blob),
        output,
        ("packing", None),
    )
}
