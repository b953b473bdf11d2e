package verify

import "go.arco.dev/servo/internal/store"

// Compared are the columns that are compared, "table.column".
func Compared() []string {
	t := newTables()
	var all []string
	for table, names := range map[string][]string{
		"runs": t.runs.names, "tasks": t.tasks.names, "edges": columnsOf[store.EdgeRow]("edges").names, "waiting": t.waiting.names,
		"ready_q": t.ready.names, "pool_q": t.pool.names, "leases": t.leases.names, "retry_q": t.retry.names,
		"tenants": t.tenants.names, "workspaces": t.workspaces.names, "deployments": t.deployments.names,
	} {
		for _, name := range names {
			all = append(all, table+"."+name)
		}
	}
	return all
}

// SameJSON compares JSON as columns are compared.
var SameJSON = sameJSON
