package plan

// Downstream returns the keys of the assets that name an asset as their upstream; none for an unknown
// asset.
func (p *Planner) Downstream(key string) []string {
	node, known := p.graph.Index(key)
	if !known {
		return nil
	}
	var keys []string
	for _, next := range p.graph.Downstream(node) {
		keys = append(keys, p.graph.Asset(next).Key)
	}
	return keys
}
