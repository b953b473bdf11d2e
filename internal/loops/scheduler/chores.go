package scheduler

import (
	"context"
	"errors"
	"time"

	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/schedule"
	"go.arco.dev/servo/internal/store"
)

const (
	// chores is how often the loop of chores runs.
	chores = time.Minute
	// choresBatch is how many rows one of its transactions takes.
	choresBatch = 1000
	// zonesEvery is how many rounds pass between two searches for other zone data that find none: only a server
	// of another version can write it.
	zonesEvery = 10
)

// tidy is the state of the loop of chores.
type tidy struct {
	rounds int
	found  bool // configs with other zone data, the last time
}

// doChores computes slots again that were computed with other zone data, and deletes old external events.
func (s *Scheduler) doChores(ctx context.Context) (more bool, err error) {
	// Servers of two versions must not overwrite each other: after the first search only older data is
	// replaced.
	first := s.tidy.rounds == 0
	var zones error
	if s.tidy.rounds%zonesEvery == 0 || s.tidy.found {
		s.tidy.found, zones = s.renewZones(ctx, first)
	}
	if zones == nil {
		s.tidy.rounds++
	}
	forgotten, err := s.store.ForgetEvents(ctx, config.KeepEvents, choresBatch)
	return forgotten == choresBatch, errors.Join(zones, err)
}

func (s *Scheduler) renewZones(ctx context.Context, newer bool) (found bool, err error) {
	var after store.ConfigKey
	configs := 0
	for more := true; more && ctx.Err() == nil; {
		renewed, err := s.engine.RenewZones(ctx, after, newer, choresBatch)
		if err != nil {
			return true, err
		}
		configs += renewed.Configs
		after, more = renewed.Last, renewed.More
	}
	if configs > 0 && s.config.Logger != nil {
		s.config.Logger.Info("slots computed again with this server's zone data", "configs", configs, "zone_data", schedule.TZVersion())
	}
	return configs > 0, ctx.Err()
}
