package store

import (
	"context"
	"strconv"
	"time"

	"go.arco.dev/servo/internal/base/id"
)

// AllowPause allows up to most between two statements of the transaction. By default PostgreSQL ends
// a transaction of the engine after two idle seconds.
func (tx *Tx) AllowPause(ctx context.Context, most time.Duration) error {
	return tx.q.AllowPause(ctx, strconv.FormatInt(most.Milliseconds(), 10)+"ms")
}

// Settings are the settings of PostgreSQL that a transaction of the store runs with.
type Settings struct {
	JIT               string
	Isolation         string
	ReadOnly          string
	SynchronousCommit string
}

// Settings reads the settings in a transaction of each kind, by the kind's name. Servers, databases
// and roles have settings of their own, so only a transaction shows which one applies.
func (s *Store) Settings(ctx context.Context) (map[string]Settings, error) {
	all := make(map[string]Settings)
	read := func(kind string) func(context.Context, *Tx) error {
		return func(ctx context.Context, tx *Tx) error {
			row, err := tx.q.SessionSettings(ctx)
			all[kind] = Settings{JIT: row.Jit, Isolation: row.Isolation, ReadOnly: row.ReadOnly, SynchronousCommit: row.SynchronousCommit}
			return err
		}
	}
	if err := s.Engine(ctx, read("engine")); err != nil {
		return nil, err
	}
	return all, s.Tenant(ctx, id.Tenant{}.String(), read("tenant"))
}
