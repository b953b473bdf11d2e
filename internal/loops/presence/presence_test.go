package presence_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/pgbouncer"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/loops/presence"
	"go.arco.dev/servo/internal/store"
)

// warnings is a logger whose warnings can be waited for.
type warnings struct {
	slog.Handler

	messages chan string
}

func (w warnings) Enabled(context.Context, slog.Level) bool { return true }

func (w warnings) Handle(_ context.Context, r slog.Record) error {
	select {
	case w.messages <- r.Message:
	default:
	}
	return nil
}

// eventually is the longest that something certain may take on a busy machine.
const eventually = time.Minute

func TestPresence(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T) (*servotest.Database, *engine.Engine) {
		t.Helper()
		db := servotest.DB(t)
		e := engine.New(db.Store, engine.Config{}, nil)
		t.Cleanup(e.Stop)
		return db, e
	}
	names := func(t *testing.T, db *servotest.Database) (names []string) {
		t.Helper()
		servers, err := db.Servers(t.Context())
		require.NoError(t, err)
		for _, s := range servers {
			names = append(names, s.Name+" "+s.Version)
		}
		return names
	}

	t.Run("a server is listed from its start to its stop", func(t *testing.T) {
		t.Parallel()
		db, e := setup(t)
		p := presence.Start(t.Context(), db.Store, e, presence.Config{Name: "a", Version: "1.0", ListenURL: db.URL})
		require.Eventually(t, func() bool { return len(names(t, db)) == 1 }, eventually, time.Millisecond)
		require.Equal(t, []string{"a 1.0"}, names(t, db))
		require.NoError(t, p.Stop(t.Context()))
		require.Empty(t, names(t, db))
	})

	t.Run("a worker's first claim is known at once, and wakes admission", func(t *testing.T) {
		t.Parallel()
		db, e := setup(t)
		p := presence.Start(t.Context(), db.Store, e, presence.Config{Name: "a"})
		defer func() { require.NoError(t, p.Stop(context.Background())) }()
		_, err := e.Claim(t.Context(), engine.ClaimRequest{Worker: "w", Claim: id.Of[id.Claim](uuid.New()), Pools: []string{"p", "q"}, Max: 1, Slots: 3})
		require.NoError(t, err)
		want := map[string]store.Capacity{"p": {Workers: 1, Slots: 3}, "q": {Workers: 1, Slots: 3}}
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			got, err := db.PoolCapacities(t.Context())
			require.NoError(c, err)
			require.Equal(c, want, got)
		}, eventually, time.Millisecond)
	})

	t.Run("listening through a pooler is reported as ineffective", func(t *testing.T) {
		t.Parallel()
		db, e := setup(t)
		log := warnings{Handler: slog.DiscardHandler, messages: make(chan string, 100)}
		p := presence.Start(t.Context(), db.Store, e, presence.Config{
			Name: "a", ListenURL: pgbouncer.Start(t, db.URL, 2), Logger: slog.New(log),
		})
		defer func() { require.NoError(t, p.Stop(context.Background())) }()
		for message := range log.messages {
			if strings.Contains(message, "--listen-database") {
				return
			}
		}
	})
}
