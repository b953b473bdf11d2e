package checks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"go.arco.dev/servo/internal/data/rows"
	"go.arco.dev/servo/internal/domain/quality"
)

// unique finds combinations of values that occur twice. Rows with a null are skipped, as UNIQUE of
// SQL does.
type unique struct {
	at     []int
	hash   hasher
	seeded bool
	spool  *spool
	key    []byte
	rows   int64
	bad    int64    // rows beyond the first of each combination
	guilty []digest // a few of those that occur twice, for the sample
}

func (e *unique) observe(b *rows.Batch, _ func(int)) error {
	if !e.seeded {
		e.hash, e.seeded = newHasher(), true
	}
	for i := range b.N {
		d, ok := e.digest(b, i)
		if !ok {
			continue
		}
		e.rows++
		if err := e.spool.add(d); err != nil {
			return err
		}
	}
	return nil
}

func (e *unique) digest(b *rows.Batch, row int) (digest, bool) {
	e.key = e.key[:0]
	for _, c := range e.at {
		v := b.Cols[c][row]
		if v.Kind == rows.Null {
			return digest{}, false
		}
		e.key = v.AppendKey(e.key)
	}
	return e.hash.sum(e.key), true
}

func (e *unique) verdict(*pass) (bool, string, string, error) {
	err := e.spool.each(func(_ int, sorted []digest) error {
		for i := 1; i < len(sorted); i++ {
			if sorted[i] != sorted[i-1] {
				continue
			}
			e.bad++
			if n := len(e.guilty); n < quality.MaxSample && (n == 0 || e.guilty[n-1] != sorted[i]) {
				e.guilty = append(e.guilty, sorted[i])
			}
		}
		return nil
	})
	return e.bad == 0, fmt.Sprintf("%d of %d rows repeat another row", e.bad, e.rows), "no value twice", err
}

// offends reports whether a row is one of the guilty ones.
func (e *unique) offends(b *rows.Batch, row int) bool {
	d, ok := e.digest(b, row)
	return ok && slices.Contains(e.guilty, d)
}

func (e *unique) hasGuilty() bool { return len(e.guilty) > 0 }

// Close deletes temporary files.
func (e *unique) Close() error { return e.spool.Close() }

// referential finds values that do not exist in a column of an upstream.
type referential struct {
	at        int
	hash      hasher
	permitted *spool
	used      *spool
	key       []byte
	bad       int64 // distinct values
	guilty    []digest
	expected  string
}

func (p *pass) newReferential(c quality.Check, at int, budget int64) (_ evaluator, err error) {
	if p.References == nil {
		return nil, errors.New("the inputs are not available to this check")
	}
	files, err := p.References(c.References.Asset)
	if err != nil {
		return nil, err
	}
	e := &referential{
		at: at, hash: newHasher(), permitted: newSpool(p.Dir, budget/2), used: newSpool(p.Dir, budget/2),
		expected: fmt.Sprintf("values of %s in %s", c.References.Column, c.References.Asset),
	}
	defer func() {
		if err != nil {
			_ = e.Close()
		}
	}()
	reader, err := rows.Open(files.Paths, files.Format, []string{c.References.Column}, files.Schema)
	if err != nil {
		return nil, err
	}
	defer func() { _ = reader.Close() }()
	var b rows.Batch
	for {
		switch err := reader.Next(&b); {
		case errors.Is(err, io.EOF):
			if !slices.ContainsFunc(reader.Columns(), func(col quality.Column) bool { return col.Name == c.References.Column }) && reader.Rows() > 0 {
				return nil, fmt.Errorf("%s has no column %q", c.References.Asset, c.References.Column)
			}
			return e, nil
		case err != nil:
			return nil, err
		}
		for i := range b.N {
			if d, ok := e.digest(b.Cols[0][i]); ok {
				if err := e.permitted.add(d); err != nil {
					return nil, err
				}
			}
		}
	}
}

func (e *referential) digest(v rows.Value) (digest, bool) {
	if v.Kind == rows.Null {
		return digest{}, false
	}
	e.key = v.AppendText(e.key[:0])
	return e.hash.sum(e.key), true
}

func (e *referential) observe(b *rows.Batch, _ func(int)) error {
	for i := range b.N {
		if d, ok := e.digest(b.Cols[e.at][i]); ok {
			if err := e.used.add(d); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *referential) verdict(*pass) (bool, string, string, error) {
	// Both sides need the same partitions.
	if e.permitted.spilled() != e.used.spilled() {
		for _, s := range []*spool{e.permitted, e.used} {
			if !s.spilled() {
				if err := s.spill(); err != nil {
					return false, "", "", err
				}
			}
		}
	}
	if !e.permitted.spilled() {
		slices.SortFunc(e.permitted.memory, digest.compare)
	}
	err := e.used.each(func(partition int, used []digest) error {
		permitted := e.permitted.memory
		if partition >= 0 {
			var err error
			if permitted, err = e.permitted.load(partition, e.permitted.files[partition]); err != nil {
				return err
			}
		}
		for i, d := range used {
			if i > 0 && used[i-1] == d {
				continue
			}
			if _, ok := slices.BinarySearchFunc(permitted, d, digest.compare); ok {
				continue
			}
			e.bad++
			if len(e.guilty) < quality.MaxSample {
				e.guilty = append(e.guilty, d)
			}
		}
		return nil
	})
	return e.bad == 0, fmt.Sprintf("%d distinct values do not exist there", e.bad), e.expected, err
}

func (e *referential) offends(b *rows.Batch, row int) bool {
	d, ok := e.digest(b.Cols[e.at][row])
	return ok && slices.Contains(e.guilty, d)
}

func (e *referential) hasGuilty() bool { return len(e.guilty) > 0 }

// Close deletes temporary files.
func (e *referential) Close() error { return errors.Join(e.permitted.Close(), e.used.Close()) }

// hashed is an evaluator that finds its offending rows only after the pass.
type hashed interface {
	offends(b *rows.Batch, row int) bool
	hasGuilty() bool
}

// sampleHashes reads the files again to sample the rows of failed checks that compare hashes. It
// stops when each has a full sample, and is not needed if all checks passed.
func (p *pass) sampleHashes(ctx context.Context, results []quality.Result) error {
	open := map[int]hashed{}
	for i, run := range p.running {
		if h, ok := run.eval.(hashed); ok && results[i].Failed() && run.err == nil && h.hasGuilty() {
			open[i] = h
		}
	}
	if len(open) == 0 {
		return nil
	}
	reader, err := rows.Open(p.Paths, p.Format, p.columns, p.Schema)
	if err != nil {
		return err
	}
	defer func() { _ = reader.Close() }()
	var b rows.Batch
	p.rows = 0 // sample numbers rows from it
	for len(open) > 0 {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := reader.Next(&b); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		for i, h := range open {
			for row := range b.N {
				if h.offends(&b, row) {
					p.sample(p.running[i], &b, row)
				}
			}
			if len(p.running[i].sample) >= quality.MaxSample {
				delete(open, i)
			}
		}
		p.rows += int64(b.N)
	}
	for i, run := range p.running {
		if _, ok := run.eval.(hashed); ok && results[i].Failed() {
			for _, s := range run.sample {
				results[i].Sample = append(results[i].Sample, s.fields)
			}
		}
	}
	return nil
}
