// Package commit writes the files of one attempt to a blob store and commits them: first the files,
// then _metadata.json, last _commit.json. It needs nothing of the store but read-after-write. It
// decides nothing about promotion: an attempt whose report is not accepted leaves files that no
// reader ever opens, and Discard deletes them.
package commit
