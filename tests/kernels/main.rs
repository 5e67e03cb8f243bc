//! Tests of the GPU's copy kernels on the CPU (their source is both C and CUDA), and of the PTX
//! compiled from it.

mod bytes;
mod compiled;
mod conversions;
mod element;
mod halves;
mod memory;
mod ptx;
