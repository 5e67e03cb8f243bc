//! The copy kernels of GPUs, run on the CPU: their source is C as well as CUDA. And what can be told of the PTX made of
//! it without a GPU.

mod bytes;
mod compiled;
mod conversions;
mod element;
mod halves;
mod memory;
mod ptx;
