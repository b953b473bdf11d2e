// Package blob reads and writes objects of a blob store that a URL names: a directory (file), Amazon
// S3 (s3), Google Cloud Storage (gs) or Azure Blob Storage (azblob). Callers may rely on
// read-after-write and on nothing else: no object is created conditionally, none is renamed, and no
// order of writes is visible. An object of a directory is on disk when Close returns.
package blob
