package checks

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"slices"
)

// digest is a hash of 128 bits: two independent ones of 64. A collision among a billion values has a
// probability of 10^-20.
type digest struct{ high, low uint64 }

func (d digest) compare(other digest) int {
	switch {
	case d.high != other.high:
		if d.high < other.high {
			return -1
		}
		return 1
	case d.low < other.low:
		return -1
	case d.low > other.low:
		return 1
	}
	return 0
}

// hasher hashes values with seeds of this process.
type hasher struct{ a, b maphash.Seed }

func newHasher() hasher { return hasher{maphash.MakeSeed(), maphash.MakeSeed()} }

func (h hasher) sum(key []byte) digest {
	return digest{maphash.Bytes(h.a, key), maphash.Bytes(h.b, key)}
}

const (
	partitions = 256
	digestSize = 16
)

// spool collects digests. Beyond its budget it writes them to partitions on disk, by their first
// byte, so that one partition at a time is sorted in memory.
type spool struct {
	dir     string
	budget  int
	memory  []digest
	files   []*os.File
	writers []*bufio.Writer
}

func newSpool(dir string, budget int64) *spool {
	return &spool{dir: dir, budget: max(int(budget/digestSize), 1024)}
}

// add collects a digest.
func (s *spool) add(d digest) error {
	if len(s.memory) == s.budget {
		if err := s.spill(); err != nil {
			return err
		}
	}
	s.memory = append(s.memory, d)
	return nil
}

// spill moves the collected digests to disk.
func (s *spool) spill() error {
	if s.files == nil {
		for range partitions {
			f, err := os.CreateTemp(s.dir, "servo-check-*")
			if err != nil {
				return fmt.Errorf("write hashes to disk: %w", err)
			}
			s.files = append(s.files, f)
			s.writers = append(s.writers, bufio.NewWriterSize(f, 16<<10))
		}
	}
	var record [digestSize]byte
	for _, d := range s.memory {
		binary.BigEndian.PutUint64(record[:8], d.high)
		binary.BigEndian.PutUint64(record[8:], d.low)
		if _, err := s.writers[record[0]].Write(record[:]); err != nil {
			return fmt.Errorf("write hashes to disk: %w", err)
		}
	}
	s.memory = s.memory[:0]
	return nil
}

// each calls a function with the digests of each partition, sorted. Without spilling there is one.
func (s *spool) each(visit func(partition int, sorted []digest) error) error {
	if s.files == nil {
		slices.SortFunc(s.memory, digest.compare)
		return visit(-1, s.memory)
	}
	if err := s.spill(); err != nil {
		return err
	}
	for i, f := range s.files {
		sorted, err := s.load(i, f)
		if err != nil {
			return err
		}
		if err := visit(i, sorted); err != nil {
			return err
		}
	}
	return nil
}

// load reads one partition into the memory that collected digests used.
func (s *spool) load(i int, f *os.File) ([]digest, error) {
	if err := s.writers[i].Flush(); err != nil {
		return nil, fmt.Errorf("write hashes to disk: %w", err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read hashes from disk: %w", err)
	}
	s.memory = s.memory[:0]
	r := bufio.NewReaderSize(f, 64<<10)
	var record [digestSize]byte
	for {
		if _, err := io.ReadFull(r, record[:]); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read hashes from disk: %w", err)
		}
		s.memory = append(s.memory, digest{binary.BigEndian.Uint64(record[:8]), binary.BigEndian.Uint64(record[8:])})
	}
	slices.SortFunc(s.memory, digest.compare)
	return s.memory, nil
}

// Close deletes the files.
func (s *spool) Close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close(), os.Remove(f.Name()))
	}
	s.files, s.memory = nil, nil
	return errors.Join(errs...)
}

// spilled reports whether digests are on disk.
func (s *spool) spilled() bool { return s.files != nil }
