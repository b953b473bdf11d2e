package api

import (
	"context"
	"strings"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/store"
)

// auditService implements servo.v1.AuditService.
type auditService struct {
	servov1.UnimplementedAuditServiceServer
	*Server
}

// ListAudit implements servov1.AuditServiceServer.
func (s auditService) ListAudit(ctx context.Context, req *servov1.ListAuditRequest) (*servov1.ListAuditResponse, error) {
	p, err := pageOf(req)
	if err != nil {
		return nil, err
	}
	filter := store.AuditFilter{Actor: req.GetActor()}
	if strings.ContainsRune(filter.Actor, 0) {
		return nil, fault.New(fault.InvalidArgument, "has a zero character", fault.Field("actor"), fault.Remedy("use the name of a key, such as key/ci"))
	}
	if filter.Since, err = timeOf("since", req.GetSince()); err != nil {
		return nil, err
	}
	before, err := idPosition[id.Event](p)
	if err != nil {
		return nil, err
	}
	if before != nil {
		filter.Before = before.UUID
	}
	if filter.Tenant, err = s.ownerOrAll(ctx, req.GetTenant()); err != nil {
		return nil, err
	}
	found, err := s.store.Audit(ctx, filter, p.size+1)
	if err != nil {
		return nil, err
	}
	answer := &servov1.ListAuditResponse{}
	found, answer.NextPageToken = cut(p, found, func(a store.Audit) int { return len(a.Request) }, func(a store.Audit) string { return a.ID.String() })
	for _, a := range found {
		request, err := structOf(a.Request)
		if err != nil {
			return nil, err
		}
		answer.Entries = append(answer.Entries, &servov1.AuditEntry{
			Id: a.ID.String(), At: timestamp(a.At), Actor: a.Actor, Address: a.Address, RequestId: a.RequestID, Method: a.Method, Subject: a.Subject,
			Allowed: a.Allowed, Code: a.Code, Request: request,
		})
	}
	return answer, nil
}
