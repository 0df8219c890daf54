//! A small layered layout: ways that lead back are turned for the time being, nodes stand on layers by their longest way from the
//! start, a few sweeps put neighbours near one another, and each layer is then laid out so that nothing overlaps.
//!
//! An edge that passes layers, and every text on an edge, gets a place of its own on them, so that no line runs through a node and no
//! text lies on another. Same input, same output: every tie is broken by position.

use super::{Edge, Node};

/// Pixels of one character, of a line, around a text, and between things.
const CHAR: f64 = 7.1;
const LINE: f64 = 17.0;
const PAD: (f64, f64) = (16.0, 9.0);
const GAP_X: f64 = 26.0;
const GAP_Y: f64 = 18.0;
/// How far from a corner a way back leaves and comes in.
const CORNER: f64 = 14.0;
/// How wide a row of nodes without edges may be.
const ROW: f64 = 900.0;
/// Sweeps up and down; more change nothing in flows of ordinary size.
const SWEEPS: usize = 12;

/// A box by its centre.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Spot {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// A line with the place of its text.
#[derive(Clone, Debug, Default)]
pub(super) struct Route {
    /// From the source to the target.
    pub(super) points: Vec<(f64, f64)>,
    /// Centre of the text, if there is one.
    pub(super) label: Option<Spot>,
}

/// Where everything stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    pub(super) nodes: Vec<Spot>,
    pub(super) routes: Vec<Route>,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// How wide a text is; signs of East Asian scripts count twice.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().map(|c| if u32::from(c) >= 0x1100 { 2.0 * CHAR } else { CHAR }).sum()
}

/// Size of a text of several lines with space around it.
pub(super) fn text_size(lines: &[String], pad: (f64, f64)) -> (f64, f64) {
    let widest = lines.iter().map(|line| text_width(line)).fold(0.0, f64::max);
    #[allow(clippy::cast_precision_loss)]
    let high = lines.len() as f64 * LINE;
    (widest + 2.0 * pad.0, high + 2.0 * pad.1)
}

/// What stands on a layer: a node, or the place of an edge.
struct Vertex {
    layer: usize,
    size: (f64, f64),
    above: Vec<usize>,
    below: Vec<usize>,
    x: f64,
}

struct Plan {
    vertices: Vec<Vertex>,
    layers: Vec<Vec<usize>>,
    /// For each edge: its places from top to bottom, and whether it was turned.
    chains: Vec<(Vec<usize>, bool)>,
}

/// Lays out one part. Nodes without edges stand in rows below the others.
pub(super) fn lay_out(nodes: &[Node], edges: &[Edge]) -> Layout {
    let is_tied = |at: usize| edges.iter().any(|edge| edge.from == at || edge.to == at);
    let (tied, loose): (Vec<usize>, Vec<usize>) = (0..nodes.len()).partition(|at| is_tied(*at));
    let position = |at: usize| tied.binary_search(&at).unwrap_or_default();
    let tied_nodes: Vec<Node> = tied.iter().filter_map(|at| nodes.get(*at)).cloned().collect();
    let moved = |edge: &Edge| Edge { from: position(edge.from), to: position(edge.to), ..edge.clone() };
    let tied_edges: Vec<Edge> = edges.iter().map(moved).collect();
    let laid = lay_out_tied(&tied_nodes, &tied_edges);
    let mut layout = Layout { nodes: vec![Spot::default(); nodes.len()], ..laid.clone() };
    for (at, spot) in tied.iter().zip(&laid.nodes) {
        layout.nodes.get_mut(*at).into_iter().for_each(|place| *place = *spot);
    }
    in_rows(nodes, &loose, &mut layout);
    layout
}

/// Puts nodes into rows below what is there.
fn in_rows(nodes: &[Node], loose: &[usize], layout: &mut Layout) {
    let most = layout.width.max(ROW);
    let top = if layout.height > 0.0 { layout.height + 2.0 * GAP_Y } else { 0.0 };
    let (mut x, mut y, mut high) = (0.0_f64, top, 0.0_f64);
    for at in loose {
        let Some(node) = nodes.get(*at) else { continue };
        let (width, height) = text_size(&node.lines, PAD);
        if x > 0.0 && x + width > most {
            (x, y, high) = (0.0, y + high + GAP_Y, 0.0);
        }
        let spot = Spot { x: x + width / 2.0, y: y + height / 2.0, width, height };
        layout.nodes.get_mut(*at).into_iter().for_each(|place| *place = spot);
        x += width + GAP_X;
        high = high.max(height);
        layout.width = layout.width.max(x - GAP_X);
        layout.height = layout.height.max(y + height);
    }
}

fn lay_out_tied(nodes: &[Node], edges: &[Edge]) -> Layout {
    if nodes.is_empty() {
        return Layout::default();
    }
    let turned = turned(nodes.len(), edges);
    let layer = layers(nodes.len(), edges, &turned);
    let mut plan = plan(nodes, edges, &turned, &layer);
    order(&mut plan);
    place(&mut plan);
    finish(nodes, edges, &plan)
}

/// Edges that close a circle, found by walking from each node in order.
fn turned(count: usize, edges: &[Edge]) -> Vec<bool> {
    let mut out: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (at, edge) in edges.iter().enumerate() {
        out.get_mut(edge.from).into_iter().for_each(|list| list.push(at));
    }
    let mut turned = vec![false; edges.len()];
    // 0: new, 1: on the way, 2: done.
    let mut state = vec![0_u8; count];
    let get = |state: &[u8], at: usize| state.get(at).copied().unwrap_or(2);
    for root in 0..count {
        let mut path = vec![(root, 0_usize)];
        while let Some((at, nth)) = path.last_mut() {
            let (at, edge) = (*at, out.get(*at).and_then(|list| list.get(*nth)).copied());
            if *nth == 0 {
                if get(&state, at) == 2 {
                    path.pop();
                    continue;
                }
                state.get_mut(at).into_iter().for_each(|state| *state = 1);
            }
            *nth += 1;
            let Some(edge) = edge else {
                state.get_mut(at).into_iter().for_each(|state| *state = 2);
                path.pop();
                continue;
            };
            let to = edges.get(edge).map_or(at, |edge| edge.to);
            match get(&state, to) {
                1 => turned.get_mut(edge).into_iter().for_each(|turned| *turned = true),
                0 => path.push((to, 0)),
                _ => {}
            }
        }
    }
    turned
}

fn ends(edge: &Edge, turned: bool) -> (usize, usize) {
    if turned { (edge.to, edge.from) } else { (edge.from, edge.to) }
}

/// Layers of nodes: even ones, so that texts of edges find room between.
fn layers(count: usize, edges: &[Edge], turned: &[bool]) -> Vec<usize> {
    let mut layer = vec![0_usize; count];
    let mut waits = vec![0_usize; count];
    let all = || edges.iter().zip(turned).map(|(edge, turned)| ends(edge, *turned)).filter(|(from, to)| from != to);
    for (_, to) in all() {
        waits.get_mut(to).into_iter().for_each(|waits| *waits += 1);
    }
    let mut below: Vec<Vec<usize>> = vec![Vec::new(); count];
    all().for_each(|(from, to)| below.get_mut(from).into_iter().for_each(|list| list.push(to)));
    let mut open: std::collections::VecDeque<usize> =
        waits.iter().enumerate().filter(|(_, waits)| **waits == 0).map(|(at, _)| at).collect();
    while let Some(at) = open.pop_front() {
        let here = layer.get(at).copied().unwrap_or_default();
        for to in below.get(at).into_iter().flatten().copied() {
            if let Some(layer) = layer.get_mut(to) {
                *layer = (*layer).max(here + 2);
            }
            if let Some(waits) = waits.get_mut(to) {
                *waits -= 1;
                if *waits == 0 {
                    open.push_back(to);
                }
            }
        }
    }
    layer
}

fn plan(nodes: &[Node], edges: &[Edge], turned: &[bool], layer: &[usize]) -> Plan {
    let vertex = |layer: usize, size: (f64, f64)| Vertex { layer, size, above: Vec::new(), below: Vec::new(), x: 0.0 };
    let mut vertices: Vec<Vertex> =
        nodes.iter().zip(layer).map(|(node, layer)| vertex(*layer, text_size(&node.lines, PAD))).collect();
    let mut chains = Vec::new();
    for (edge, turned) in edges.iter().zip(turned) {
        let (top, bottom) = ends(edge, *turned);
        let of = |at: usize| layer.get(at).copied().unwrap_or_default();
        let mut chain = vec![top];
        // The text stands beside the source, wherever that is.
        let text_at = if *turned { of(bottom).saturating_sub(1) } else { of(top) + 1 };
        for at in of(top) + 1..of(bottom) {
            let has_text = at == text_at && !edge.lines.is_empty();
            let size = if has_text { text_size(&edge.lines, (6.0, 3.0)) } else { (10.0, 0.0) };
            chain.push(vertices.len());
            vertices.push(vertex(at, size));
        }
        if bottom != top {
            chain.push(bottom);
        }
        for (one, next) in chain.iter().zip(chain.iter().skip(1)) {
            vertices.get_mut(*one).into_iter().for_each(|v| v.below.push(*next));
            vertices.get_mut(*next).into_iter().for_each(|v| v.above.push(*one));
        }
        chains.push((chain, *turned));
    }
    let count = vertices.iter().map(|v| v.layer + 1).max().unwrap_or_default();
    let mut layers: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (at, vertex) in vertices.iter().enumerate() {
        layers.get_mut(vertex.layer).into_iter().for_each(|layer| layer.push(at));
    }
    Plan { vertices, layers, chains }
}

/// Puts neighbours near one another: each layer by the middle of its neighbours, down and up again.
fn order(plan: &mut Plan) {
    let mut position = vec![0.0_f64; plan.vertices.len()];
    let settle = |layer: &[usize], position: &mut [f64]| {
        for (nth, at) in layer.iter().enumerate() {
            #[allow(clippy::cast_precision_loss)]
            position.get_mut(*at).into_iter().for_each(|p| *p = nth as f64);
        }
    };
    plan.layers.iter().for_each(|layer| settle(layer, &mut position));
    for sweep in 0..SWEEPS {
        let down = sweep % 2 == 0;
        let count = plan.layers.len();
        for nth in 0..count {
            let nth = if down { nth } else { count - 1 - nth };
            let Some(layer) = plan.layers.get_mut(nth) else { continue };
            let key = |at: &usize| {
                let vertex = plan.vertices.get(*at)?;
                mean(if down { &vertex.above } else { &vertex.below }, &position)
            };
            let own = |at: &usize| position.get(*at).copied().unwrap_or_default();
            let mut keyed: Vec<(f64, usize)> =
                layer.iter().map(|at| (key(at).unwrap_or_else(|| own(at)), *at)).collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            *layer = keyed.into_iter().map(|(_, at)| at).collect();
            settle(layer, &mut position);
        }
    }
}

fn mean(of: &[usize], position: &[f64]) -> Option<f64> {
    #[allow(clippy::cast_precision_loss)]
    let count = of.len() as f64;
    (!of.is_empty()).then(|| of.iter().filter_map(|at| position.get(*at)).sum::<f64>() / count)
}

/// Gives every vertex its place from left to right.
fn place(plan: &mut Plan) {
    for layer in &plan.layers {
        let mut x = 0.0;
        for at in layer {
            let Some(vertex) = plan.vertices.get_mut(*at) else { continue };
            vertex.x = x + vertex.size.0 / 2.0;
            x += vertex.size.0 + GAP_X;
        }
    }
    for sweep in 0..SWEEPS {
        let down = sweep % 2 == 0;
        let count = plan.layers.len();
        for nth in 0..count {
            let nth = if down { nth } else { count - 1 - nth };
            let Some(layer) = plan.layers.get(nth) else { continue };
            let xs: Vec<f64> = plan.vertices.iter().map(|v| v.x).collect();
            let wish = |at: &usize| {
                let vertex = plan.vertices.get(*at)?;
                let (near, far) = if down { (&vertex.above, &vertex.below) } else { (&vertex.below, &vertex.above) };
                mean(near, &xs).or_else(|| mean(far, &xs)).or(Some(vertex.x))
            };
            let wishes: Vec<f64> = layer.iter().map(|at| wish(at).unwrap_or_default()).collect();
            let widths: Vec<f64> = layer.iter().filter_map(|at| plan.vertices.get(*at)).map(|v| v.size.0).collect();
            let placed = spread(&wishes, &widths);
            for (at, x) in layer.clone().iter().zip(placed) {
                plan.vertices.get_mut(*at).into_iter().for_each(|v| v.x = x);
            }
        }
    }
    let left = plan.vertices.iter().map(|v| v.x - v.size.0 / 2.0).fold(f64::INFINITY, f64::min);
    plan.vertices.iter_mut().for_each(|v| v.x -= left);
}

/// Places as near as possible to where each wants to be, in order and without overlap: neighbours that push one another share
/// the middle of their wishes (pool adjacent violators).
fn spread(wishes: &[f64], widths: &[f64]) -> Vec<f64> {
    let mut offset = 0.0;
    let mut offsets = Vec::with_capacity(wishes.len());
    for (nth, width) in widths.iter().enumerate() {
        if nth > 0 {
            offset += width / 2.0 + GAP_X;
        }
        offsets.push(offset);
        offset += width / 2.0;
    }
    // Blocks of neighbours: sum of wishes and how many.
    let mut blocks: Vec<(f64, f64)> = Vec::new();
    for (wish, offset) in wishes.iter().zip(&offsets) {
        blocks.push((wish - offset, 1.0));
        while let [.., (sum_a, n_a), (sum_b, n_b)] = blocks.as_slice() {
            if sum_a / n_a <= sum_b / n_b {
                break;
            }
            let merged = (sum_a + sum_b, n_a + n_b);
            blocks.truncate(blocks.len() - 2);
            blocks.push(merged);
        }
    }
    let mut placed = Vec::with_capacity(wishes.len());
    for (sum, count) in blocks {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        for _ in 0..count as usize {
            let offset = offsets.get(placed.len()).copied().unwrap_or_default();
            placed.push(sum / count + offset);
        }
    }
    placed
}

fn finish(nodes: &[Node], edges: &[Edge], plan: &Plan) -> Layout {
    let mut tops = Vec::with_capacity(plan.layers.len());
    let mut y = 0.0;
    for layer in &plan.layers {
        let high = layer.iter().filter_map(|at| plan.vertices.get(*at)).map(|v| v.size.1).fold(0.0, f64::max);
        tops.push((y, high));
        y += high + GAP_Y;
    }
    let spot = |at: usize| -> Spot {
        let Some(v) = plan.vertices.get(at) else { return Spot::default() };
        let (top, high) = tops.get(v.layer).copied().unwrap_or_default();
        Spot { x: v.x, y: top + high / 2.0, width: v.size.0, height: v.size.1 }
    };
    let band = |at: usize| {
        let layer = plan.vertices.get(at).map_or(0, |v| v.layer);
        tops.get(layer).copied().unwrap_or_default()
    };
    let routed = |(edge, chain): (&Edge, &(Vec<usize>, bool))| route(edge, chain, nodes.len(), &spot, &band);
    let routes = edges.iter().zip(&plan.chains).map(routed).collect();
    let width = plan.vertices.iter().map(|v| v.x + v.size.0 / 2.0).fold(0.0, f64::max);
    // A way from a node to itself bulges to the right.
    let bulge = if edges.iter().any(|edge| edge.from == edge.to) { 40.0 } else { 0.0 };
    Layout { nodes: (0..nodes.len()).map(spot).collect(), routes, width: width + bulge, height: (y - GAP_Y).max(0.0) }
}

fn route(
    edge: &Edge,
    (chain, turned): &(Vec<usize>, bool),
    nodes: usize,
    spot: &dyn Fn(usize) -> Spot,
    band: &dyn Fn(usize) -> (f64, f64),
) -> Route {
    if edge.from == edge.to {
        let at = spot(edge.from);
        let right = at.x + at.width / 2.0;
        let points =
            vec![(right, at.y - 6.0), (right + 26.0, at.y - 6.0), (right + 26.0, at.y + 6.0), (right, at.y + 6.0)];
        let (width, height) = text_size(&edge.lines, (6.0, 3.0));
        let label = Spot { x: right + 26.0 + width / 2.0, y: at.y, width, height };
        return Route { points, label: (!edge.lines.is_empty()).then_some(label) };
    }
    let mut points = Vec::new();
    let mut label = None;
    for (nth, at) in chain.iter().enumerate() {
        let place = spot(*at);
        if *at >= nodes {
            if place.height > 0.0 {
                label = Some(place);
            }
            // Upright through the whole layer, so that it runs beside the nodes on it.
            let (top, high) = band(*at);
            points.extend([(place.x, top), (place.x, top + high)]);
        } else if *turned {
            // A way back leaves above and comes in below, near the corner, where it is not taken for a way on.
            let beside = if nth == 0 { chain.get(1) } else { nth.checked_sub(1).and_then(|nth| chain.get(nth)) };
            let side = if beside.is_some_and(|beside| spot(*beside).x < place.x) { -1.0 } else { 1.0 };
            let end = if nth == 0 { 1.0 } else { -1.0 };
            points.push((place.x + side * (place.width / 2.0 - CORNER).max(0.0), place.y + end * place.height / 2.0));
        } else {
            let side = if points.is_empty() { 1.0 } else { -1.0 };
            points.push((place.x, place.y + side * place.height / 2.0));
        }
    }
    if *turned {
        points.reverse();
    }
    Route { points, label }
}
