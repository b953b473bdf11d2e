// Package partition defines how an asset is divided: by time, by fixed or by added values, and by
// products of these. It numbers partitions, reads and writes their keys, selects them, and maps them
// to the partitions of upstreams. Sets of partitions are ranges of numbers, so that a million
// partitions cost as much as a few. The package has no clock and no storage.
package partition
