// Package rows reads and writes the files of an output as rows: Parquet, CSV, JSON Lines and JSON.
// Readers stream in batches and their memory does not grow with the files. Files come from user
// code, so a reader returns a fault for each that is truncated, malformed or hostile, and never
// panics.
package rows
