//! XZ with its BCJ filters, by liblzma.

use liblzma::stream::{Action, Check, Error, Filters, LzmaOptions, Status, Stream};

use crate::encoding::{Bcj, BcjSet, EncodingError, LzmaTuning};
use crate::shared::{in_range, make_room};
use crate::{DecodeError, First, usize_from};

/// The bit of a preset for the slower search.
const EXTREME: u32 = 1 << 31;

/// Most memory for decoding a stream. Blocks have at most 1 MiB, and a dictionary larger than the
/// block is useless; the largest preset of `xz`, with a dictionary of 64 MiB, needs 65 MiB.
pub const MEMORY: u64 = 80 << 20;

pub fn decode(input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let mut stream = Stream::new_stream_decoder(MEMORY, 0).map_err(|_| DecodeError::Damaged)?;
    run(&mut stream, input, out)
}

pub fn decode_first(input: &[u8], out: &mut [u8]) -> Result<First, DecodeError> {
    let mut stream = Stream::new_stream_decoder(MEMORY, 0).map_err(|_| DecodeError::Damaged)?;
    run_first(&mut stream, input, out)
}

/// Returns whether the header of a stream names a check.
pub fn has_check(input: &[u8]) -> bool {
    const KIND: u8 = 0x0F;
    matches!(input, [0xFD, b'7', b'z', b'X', b'Z', 0, 0, flags, ..] if flags & KIND != 0)
}

/// Runs a decoder over all of `input`.
pub fn run(stream: &mut Stream, input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let First { stored, decoded } = run_first(stream, input, out)?;
    let is_all = stored == input.len();
    is_all.then_some(decoded).ok_or(DecodeError::Damaged)
}

/// Returns how many bytes a decoder has read and written.
pub fn done(stream: &Stream) -> (usize, usize) {
    (
        usize_from(stream.total_in()),
        usize_from(stream.total_out()),
    )
}

fn run_first(stream: &mut Stream, input: &[u8], out: &mut [u8]) -> Result<First, DecodeError> {
    let expected = out.len();
    // The extra byte tells a stream that continues from one that ends with `out`.
    let mut past = [0];
    loop {
        let (read, written) = done(stream);
        let from = input.get(read..).ok_or(DecodeError::Damaged)?;
        let to = match out.get_mut(written..) {
            Some(to) if !to.is_empty() => to,
            _ => &mut past,
        };
        let status = stream.process(from, to, Action::Finish);
        let status = status.map_err(|_| DecodeError::Damaged)?;
        let now = done(stream);
        if now.1 > expected {
            return Err(DecodeError::Long { expected });
        }
        if status == Status::StreamEnd {
            let (stored, decoded) = now;
            return Ok(First { stored, decoded });
        }
        if now == (read, written) {
            return Err(DecodeError::Damaged);
        }
    }
}

pub struct XzEncoder {
    /// Filter chains, each tried for the whole block.
    chains: Vec<Filters>,
}

/// Checks the parameters, and returns them for liblzma.
pub fn lzma_options(
    dictionary: Option<u32>,
    tuning: LzmaTuning,
    block_size: u32,
) -> Result<LzmaOptions, EncodingError> {
    let size = dictionary.unwrap_or(block_size);
    if dictionary.is_some() {
        in_range("xz", "dictionary", size, 8192..=block_size)?;
    }
    // The header can encode one bit, or two neighbouring bits.
    let top = size.checked_ilog2().map_or(0, |log| 1 << log);
    if size != top && size != top + top / 2 {
        return Err(EncodingError::Dictionary(size));
    }
    let preset = u32::from(tuning.preset.unwrap_or(6));
    in_range("xz", "preset", preset, 0..=9)?;
    let extreme = if tuning.extreme { EXTREME } else { 0 };
    let setup = |error: Error| EncodingError::Setup {
        codec: "xz",
        reason: error.to_string(),
    };
    let mut options = LzmaOptions::new_preset(preset | extreme).map_err(setup)?;
    options.dict_size(size.max(4096));
    // All presets have 3 and 0.
    let (lc, lp) = (
        u32::from(tuning.lc.unwrap_or(3)),
        u32::from(tuning.lp.unwrap_or(0)),
    );
    in_range("xz", "lp", lp, 0..=4)?;
    in_range("xz", "lc", lc, 0..=4 - lp)?;
    options.literal_context_bits(lc).literal_position_bits(lp);
    if let Some(pb) = tuning.pb {
        in_range("xz", "pb", pb.into(), 0..=4)?;
        options.position_bits(pb.into());
    }
    Ok(options)
}

impl XzEncoder {
    pub fn new(options: &LzmaOptions, filters: BcjSet) -> Self {
        let mut chains = vec![chain(None, options)];
        chains.extend(filters.iter().map(|filter| chain(Some(filter), options)));
        Self { chains }
    }

    pub fn encode(
        &mut self,
        input: &[u8],
        room: usize,
        out: &mut Vec<u8>,
        spare: &mut Vec<u8>,
    ) -> Option<usize> {
        let mut best = None;
        for chain in &self.chains {
            make_room(spare, best.unwrap_or(room));
            // The kernel's decoder supports this check.
            let mut stream = Stream::new_stream_encoder(chain, Check::Crc32).ok()?;
            let status = stream.process(input, spare, Action::Finish);
            let len = usize::try_from(stream.total_out()).ok()?;
            if matches!(status, Ok(Status::StreamEnd)) && best.is_none_or(|best| len < best) {
                best = Some(len);
                std::mem::swap(out, spare);
            }
        }
        best
    }
}

fn chain(filter: Option<Bcj>, options: &LzmaOptions) -> Filters {
    let mut filters = Filters::new();
    match filter {
        None => &mut filters,
        Some(Bcj::X86) => filters.x86(),
        Some(Bcj::PowerPc) => filters.powerpc(),
        Some(Bcj::Ia64) => filters.ia64(),
        Some(Bcj::Arm) => filters.arm(),
        Some(Bcj::ArmThumb) => filters.arm_thumb(),
        Some(Bcj::Sparc) => filters.sparc(),
        Some(Bcj::Arm64) => filters.arm64(),
        Some(Bcj::RiscV) => filters.riscv(),
    };
    filters.lzma2(options);
    filters
}
