//! Sets the soname of the shared library, the name by which the dynamic linker finds it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libforerun.so.0");
}
