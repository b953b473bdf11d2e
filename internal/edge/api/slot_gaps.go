package api

import (
	"context"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/config"
)

// maxLedger bounds the entries of a ledger that are compared at once.
const maxLedger = 1_000_000

// FindHoles implements servov1.ConfigServiceServer.
func (s configService) FindHoles(ctx context.Context, req *servov1.FindHolesRequest) (*servov1.FindHolesResponse, error) {
	key, err := s.past(ctx, req)
	if err != nil {
		return nil, err
	}
	l, err := s.store.ReadLedger(ctx, key, maxLedger)
	if err != nil {
		return nil, err
	}
	if len(l.Fired)+len(l.Ranges) >= maxLedger {
		return nil, fault.New(fault.LimitExceeded, "the ledger has more than a million entries", fault.Field("config"), fault.Remedy("retry after retention has deleted old entries"))
	}
	holes, err := config.Holes(l.Events, l.Fired, l.Ranges, l.DecidedUntil)
	if err != nil {
		return nil, err
	}
	answer := &servov1.FindHolesResponse{DecidedUntil: timestamp(l.DecidedUntil), Fired: int64(len(l.Fired))}
	for _, r := range l.Ranges {
		answer.Skipped += r.Slots
	}
	for _, h := range holes {
		answer.Holes = append(answer.Holes, &servov1.Hole{From: timestamp(h.From), To: timestamp(h.To), Slots: h.Slots, Problem: h.Problem})
	}
	return answer, nil
}

// ExplainConfig implements servov1.ConfigServiceServer.
func (s configService) ExplainConfig(ctx context.Context, req *servov1.ExplainConfigRequest) (*servov1.Explanation, error) {
	found, err := s.findAny(ctx, req)
	if err != nil {
		return nil, err
	}
	why, err := s.engine.WhyConfig(ctx, found.Key())
	if err != nil {
		return nil, err
	}
	return s.explanation(why)
}
