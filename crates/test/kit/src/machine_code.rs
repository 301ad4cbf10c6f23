//! Bytes like machine code, which the branch filters of XZ change.
//!
//! A branch filter replaces the relative target of a call by an absolute one, so that calls of one
//! function from many places become equal bytes. The code here consists mostly of calls of a few
//! functions, so the filtered block is the shortest. Noise between the calls sometimes looks like
//! an instruction.

use crate::rng::Rng;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// x86: the opcode 0xE8 and four bytes, at any position.
    X86,
    /// PowerPC, big-endian: `bl`.
    PowerPc,
    /// Itanium: `br.call` in any slot of a bundle of 16 bytes.
    Ia64,
    /// ARM: `bl`.
    Arm,
    /// ARM Thumb: `bl` as a pair of halfwords.
    ArmThumb,
    /// SPARC: `call`.
    Sparc,
}

const FUNCTIONS: [u64; 4] = [0x1000, 0x2040, 0x4800, 0x7FC0];

impl Machine {
    pub const ALL: &'static [Self] = &[
        Self::X86,
        Self::PowerPc,
        Self::Ia64,
        Self::Arm,
        Self::ArmThumb,
        Self::Sparc,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::X86 => "x86",
            Self::PowerPc => "powerpc",
            Self::Ia64 => "ia64",
            Self::Arm => "arm",
            Self::ArmThumb => "armthumb",
            Self::Sparc => "sparc",
        }
    }

    /// Returns the length of an instruction, or of a bundle, in bytes.
    const fn step(self) -> usize {
        match self {
            Self::X86 => 5,
            Self::PowerPc | Self::Arm | Self::ArmThumb | Self::Sparc => 4,
            Self::Ia64 => 16,
        }
    }

    /// Returns `len` bytes: `shift` bytes of noise, then code, so that instructions have any
    /// alignment. Call targets are relative to the start of the bytes.
    pub fn code(self, len: usize, shift: usize) -> Vec<u8> {
        let mut rng = Rng::new(u64::try_from(len ^ shift << 32).unwrap_or(0));
        let mut out = noise(&mut rng, shift);
        while out.len() < len {
            let run = usize::try_from(rng.below(4)).unwrap_or(0);
            for _ in 0..=run {
                let target = FUNCTIONS[usize::try_from(rng.below(4)).unwrap_or(0)];
                let at = u64::try_from(out.len()).unwrap_or(0);
                self.call(at, target, &mut rng, &mut out);
            }
            // A whole number of instructions preserves the alignment of the next ones.
            out.extend(noise(&mut rng, self.step()));
        }
        out.truncate(len);
        out
    }

    fn call(self, at: u64, target: u64, rng: &mut Rng, out: &mut Vec<u8>) {
        let from = |next: u64| target.wrapping_sub(at.wrapping_add(next));
        let [a, b, c, d, ..] = match self {
            Self::X86 => {
                out.push(0xE8);
                from(5).to_le_bytes()
            }
            Self::PowerPc => swapped(0x4800_0001 | from(0) & 0x03FF_FFFC),
            Self::Arm => (0xEB00_0000 | from(8) >> 2 & 0x00FF_FFFF).to_le_bytes(),
            Self::ArmThumb => {
                let offset = from(4) >> 1;
                let (high, low) = (0xF000 | offset >> 11 & 0x7FF, 0xF800 | offset & 0x7FF);
                (high | low << 16).to_le_bytes()
            }
            // The filter accepts targets within 16 MiB, whose upper bits are all equal.
            Self::Sparc => swapped(0x4000_0000 | from(0) >> 2 & 0x3FFF_FFFF),
            Self::Ia64 => return out.extend(bundle(from(0), rng)),
        };
        out.extend([a, b, c, d]);
    }
}

/// Returns a bundle: three slots of 41 bits after a template for branches. The target is counted in
/// bundles, with 20 bits and a sign; opcode 5 is a call.
fn bundle(from: u64, rng: &mut Rng) -> [u8; 16] {
    const BRANCHES: [u128; 6] = [0x10, 0x11, 0x12, 0x13, 0x16, 0x17];
    let target = u128::from(from >> 4);
    let call = 5 << 37 | (target & 0xF_FFFF) << 13 | (target >> 20 & 1) << 36;
    let template = BRANCHES[usize::try_from(rng.below(6)).unwrap_or(0)];
    let slots = [call, call, call].into_iter().enumerate();
    let bundle = slots.fold(template, |bundle, (slot, bits)| {
        bundle | bits << (5 + 41 * slot)
    });
    bundle.to_le_bytes()
}

fn swapped(word: u64) -> [u8; 8] {
    let [a, b, c, d, ..] = word.to_le_bytes();
    [d, c, b, a, 0, 0, 0, 0]
}

/// Returns random bytes from a few values, some of which start an instruction.
fn noise(rng: &mut Rng, len: usize) -> Vec<u8> {
    const BYTES: [u8; 8] = [0x00, 0xE9, 0xEB, 0x48, 0x40, 0xF0, 0xF8, 0x90];
    let byte = |rng: &mut Rng| BYTES[usize::try_from(rng.below(8)).unwrap_or(0)];
    (0..len).map(|_| byte(rng)).collect()
}
