//! The regions of a volume that belong to no file: boot regions, FAT, bitmap, and free clusters.

use std::ops::ControlFlow;

use forerun_io::{u64_from, usize_from};
use forerun_vfs::{Region, RegionKind, Result};

use crate::ondisk::FIRST_CLUSTER;
use crate::volume::Volume;

const STEP: usize = 64 << 10;

/// Visits the regions. The free clusters come last, in order.
pub fn visit(volume: &Volume, visit: &mut dyn FnMut(Region) -> ControlFlow<()>) -> Result<()> {
    let boot = &volume.boot;
    let fats = boot.fat_len * u64::from(boot.fats);
    let mut system = vec![
        Region::metadata("boot", 0..2 * boot.region_len()),
        Region::metadata("fat", boot.fat_offset..boot.fat_offset + fats),
    ];
    let len = u64::from(boot.clusters).div_ceil(8);
    for (offset, len) in volume.pieces(&volume.bitmap, 0, len) {
        system.push(Region::metadata("bitmap", offset..offset + len));
    }
    for region in system {
        if visit(region).is_break() {
            return Ok(());
        }
    }
    let mut free = FreeRuns {
        volume,
        start: None,
        visit,
    };
    free.run(len)
}

struct FreeRuns<'a> {
    volume: &'a Volume,
    /// First cluster of the current run, counted from 0; `None` outside of a run.
    start: Option<u32>,
    visit: &'a mut dyn FnMut(Region) -> ControlFlow<()>,
}

impl FreeRuns<'_> {
    fn run(&mut self, len: u64) -> Result<()> {
        let clusters = self.volume.boot.clusters;
        let mut bytes = vec![0; usize_from(len).min(STEP)];
        let (mut at, mut cluster) = (0, 0_u32);
        while at < len {
            let now = usize_from(len - at).min(STEP);
            let now = &mut bytes[..now];
            self.volume.read_chain(&self.volume.bitmap, at, now)?;
            at += u64_from(now.len());
            for &byte in &*now {
                // Few bytes differ from the byte before.
                let is_all_as_before = match self.start {
                    Some(_) => byte == 0,
                    None => byte == u8::MAX,
                };
                let next = cluster + 8;
                if !is_all_as_before || next > clusters {
                    for bit in 0..8 {
                        let number = (cluster + bit).min(clusters);
                        let is_used = number == clusters || byte >> bit & 1 == 1;
                        if self.step(number, is_used).is_break() {
                            return Ok(());
                        }
                    }
                }
                cluster = next.min(clusters);
            }
        }
        let _at_the_end_anyway = self.step(clusters, true);
        Ok(())
    }

    fn step(&mut self, cluster: u32, is_used: bool) -> ControlFlow<()> {
        match (self.start, is_used) {
            (None, false) => self.start = Some(cluster),
            (Some(start), true) => {
                self.start = None;
                let place = |cluster: u32| self.volume.boot.cluster_at(cluster + FIRST_CLUSTER);
                let range = place(start)..place(cluster);
                return (self.visit)(Region {
                    range,
                    kind: RegionKind::Free,
                });
            }
            (None, true) | (Some(_), false) => {}
        }
        ControlFlow::Continue(())
    }
}
