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
type auditService struct{ *Server }

// ListAudit implements servov1.AuditServiceServer.
func (s auditService) ListAudit(ctx context.Context, req *servov1.ListAuditRequest) (*servov1.ListAuditResponse, error) {
	filter := store.AuditFilter{Actor: req.GetActor()}
	if strings.ContainsRune(filter.Actor, 0) {
		return nil, fault.New(fault.InvalidArgument, "contains a zero character", fault.Field("actor"), fault.Remedy("use the name of a key, such as key/ci"))
	}
	var err error
	if filter.Since, err = timeOf("since", req.GetSince()); err != nil {
		return nil, err
	}
	if filter.Tenant, err = s.ownerOrAll(ctx, req.GetTenant()); err != nil {
		return nil, err
	}
	entries, next, err := list(req, func(p page) ([]store.Audit, error) {
		before, err := idPosition[id.Event](p)
		if err != nil {
			return nil, err
		}
		if before != nil {
			filter.Before = before.UUID
		}
		return s.store.Audit(ctx, filter, p.size+1)
	}, func(a store.Audit) string { return a.ID.String() }, func(a store.Audit) int { return len(a.Request) }, auditToProto)
	return &servov1.ListAuditResponse{Entries: entries, NextPageToken: next}, err
}

func auditToProto(a store.Audit) (*servov1.AuditEntry, error) {
	request, err := structOf(a.Request)
	return &servov1.AuditEntry{
		Id: a.ID.String(), At: timestamp(a.At), Actor: a.Actor, Address: a.Address, RequestId: a.RequestID, Method: a.Method, Subject: a.Subject,
		Allowed: a.Allowed, Code: a.Code, Request: request,
	}, err
}
