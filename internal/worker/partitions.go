package worker

import (
	"encoding/json"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// Partition is a partition that a task covers: its values by dimension.
type Partition map[string]string

// Bare returns the value of a partition with one dimension, and the key of any other.
func (p Partition) Bare() string {
	if len(p) == 1 {
		for _, value := range p {
			return value
		}
	}
	return p.Key()
}

// Key returns the key: JSON with sorted keys.
func (p Partition) Key() string {
	key, err := json.Marshal(p)
	if err != nil {
		return "" // a map of texts is always JSON
	}
	return string(key)
}

// PartitionsOf returns the partitions that a lease covers, in order.
func PartitionsOf(l *servov1.Lease) []Partition {
	if len(l.GetPartitions()) == 0 {
		return nil
	}
	parts := make([]Partition, 0, len(l.GetPartitions()))
	for _, key := range l.GetPartitions() {
		var p Partition
		if json.Unmarshal([]byte(key), &p) == nil {
			parts = append(parts, p)
		}
	}
	return parts
}
