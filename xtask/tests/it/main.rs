//! Tests of the program.

mod report;
