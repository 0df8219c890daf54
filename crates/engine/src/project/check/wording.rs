//! How responses are worded: rephrasing without a rephraser, translations into languages that nobody speaks.

use super::super::{Nlg, Project};
use crate::finding::{Findings, did_you_mean};

pub(super) fn check(project: &Project, findings: &mut Findings) {
    let rephrases = matches!(project.endpoints.nlg, Some(Nlg::Rephraser(_)));
    let config = &project.config;
    let languages = || std::iter::once(&*config.language).chain(config.additional_languages.iter().map(|l| &**l));
    let foreign = |language: &str| !languages().any(|known| known == language);
    let said = |language: &str| match did_you_mean(language, languages()) {
        Some(near) => format!("Did you mean `{near}`?"),
        None => format!("Add `{language}` to `additional_languages` of `config.yml`, or remove the translation."),
    };
    for response in project.domain.responses.values().filter(|response| !response.builtin) {
        if !rephrases && response.variations.iter().any(|variation| variation.rephrase == Some(true)) {
            let message =
                format!("`{}` wants to be rephrased, and nobody does that; it is said as it is", response.name);
            let help = "Add `nlg: {type: rephrase}` to `endpoints.yml`, or remove `rephrase`.";
            findings.note("F0340", &response.place, message, help);
        }
        let texts = response.variations.iter().flat_map(|variation| &variation.translations);
        for (language, _) in texts.filter(|(language, _)| foreign(language)) {
            let message = format!("`{}` is translated into `{language}`, which no conversation is in", response.name);
            findings.warning("F0341", &response.place, message, said(language));
        }
    }
    for flow in project.user_flows() {
        for (language, _) in flow.translations.iter().filter(|(language, _)| foreign(language)) {
            let message = format!("the flow `{}` is named in `{language}`, which no conversation is in", flow.id);
            findings.warning("F0341", &flow.place, message, said(language));
        }
    }
}
