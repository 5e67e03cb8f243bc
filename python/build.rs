//! Links the optimized extension module without symbols and line tables, which are several times
//! the size of its code.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--strip-all");
    }
}
