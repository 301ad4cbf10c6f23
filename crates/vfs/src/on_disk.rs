//! The macro that defines structures as they are stored in an image.

/// Defines a structure byte for byte as the format has it: its name, its length, and its fields, all of them
/// public. The fields are of types without alignment, such as `zerocopy::little_endian::U32`. A structure of
/// another length does not compile.
///
/// The calling crate depends on zerocopy, whose traits the structure has.
///
/// ```
/// use zerocopy::FromBytes;
/// use zerocopy::big_endian::U32;
///
/// forerun_vfs::on_disk! {
///     /// The start of an image.
///     Head, 6 {
///         magic: [u8; 2],
///         /// Bytes of the image.
///         len: U32,
///     }
/// }
///
/// let (head, rest) = Head::read_from_prefix(b"FS\0\0\x01\0...").unwrap();
/// assert_eq!((head.magic, head.len.get(), rest), (*b"FS", 256, &b"..."[..]));
/// ```
///
/// ```compile_fail
/// forerun_vfs::on_disk! {
///     /// Five bytes, not six.
///     Head, 6 {
///         magic: [u8; 5],
///     }
/// }
/// ```
#[macro_export]
macro_rules! on_disk {
    ($(#[$doc:meta])* $name:ident, $len:literal { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* }) => {
        $(#[$doc])*
        #[derive(
            Clone,
            Copy,
            Debug,
            ::zerocopy::FromBytes,
            ::zerocopy::IntoBytes,
            ::zerocopy::Immutable,
            ::zerocopy::KnownLayout,
            ::zerocopy::Unaligned,
        )]
        #[repr(C)]
        pub struct $name { $($(#[$field_doc])* pub $field: $kind,)* }
        const _: () = assert!(size_of::<$name>() == $len);
    };
}
